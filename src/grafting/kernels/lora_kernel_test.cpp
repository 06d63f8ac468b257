#include "grafting/kernels/lora_kernel.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "grafting/kernels/lora_tiles.h"
#include "grafting/kernels/random_adapter.h"
#include "modules/residency/row_codec.h"

namespace graft {
namespace {

constexpr ResidentType kTypes[] = {ResidentType::kF32, ResidentType::kF16, ResidentType::kBF16,
                                   ResidentType::kQ8_0};

class Floats {  // rows of f32 with a stride that is no multiple of a vector
 public:
  Floats(std::int64_t n_rows, std::int64_t n_cols, RandomFactors& random)
      : n_rows_(n_rows), stride_(n_cols + 3), values_(static_cast<std::size_t>(n_rows * stride_)) {
    for (float& value : values_) value = random.value();
  }
  float* row(std::int64_t r) { return values_.data() + r * stride_; }
  char* data() { return reinterpret_cast<char*>(values_.data()); }
  std::size_t stride_bytes() const { return static_cast<std::size_t>(stride_) * sizeof(float); }
  std::int64_t n_rows() const { return n_rows_; }
  const std::vector<float>& values() const { return values_; }

 private:
  std::int64_t n_rows_;
  std::int64_t stride_;
  std::vector<float> values_;
};

struct OwnedWork {
  const ResidentTerm* term = nullptr;
  float scale = 1.0F;
  std::vector<LoraItem> items;
};

struct OwnedSite {
  Floats* x = nullptr;
  Floats* y = nullptr;
  std::vector<OwnedWork> work;
};

// Runs one call on nth threads.
void run_call(const std::vector<OwnedSite>& owned, int nth) {
  std::vector<std::vector<LoraWork>> works(owned.size());
  std::vector<LoraSite> sites;
  for (std::size_t s = 0; s < owned.size(); ++s) {
    for (const OwnedWork& work : owned[s].work) {
      works[s].push_back({work.term, work.scale, work.items});
    }
    sites.push_back({owned[s].x->data(), owned[s].x->stride_bytes(), owned[s].y->data(),
                     owned[s].y->stride_bytes(), works[s]});
  }
  std::vector<float> scratch(lora_scratch_floats(sites), std::nanf(""));
  SpinBarrier barrier;
  std::vector<std::jthread> threads;
  for (int ith = 1; ith < nth; ++ith) {
    threads.emplace_back([&, ith] { lora_apply(sites, scratch.data(), barrier, ith, nth); });
  }
  lora_apply(sites, scratch.data(), barrier, 0, nth);
}

// Every row of the site in a call of its own, by one thread.
void run_rows_alone(const OwnedSite& site) {
  for (std::int32_t row = 0; row < site.y->n_rows(); ++row) {
    OwnedSite alone{site.x, site.y, {}};
    for (const OwnedWork& work : site.work) {
      for (const LoraItem& item : work.items) {
        if (item.y_row == row) alone.work.push_back({work.term, work.scale, {item}});
      }
    }
    run_call({alone}, 1);
  }
}

struct Exact {
  double value = 0;
  double size = 0;  // sum of the absolute values of everything added
};

// t[k] without the scale.
Exact exact_t(const ResidentTerm& term, const LoraItem& item, std::int64_t k, const float* x) {
  if (term.site.op == SiteOp::kGetRows) {
    const double value = decode_value(
        term.type_a, term.a + static_cast<std::size_t>(item.x_row) * term.row_bytes_a, k);
    return {value, std::fabs(value)};
  }
  Exact sum;
  const auto row = static_cast<std::size_t>(item.expert * term.rank + k);
  for (std::int64_t i = 0; i < term.n_in; ++i) {
    const double product =
        double{decode_value(term.type_a, term.a + row * term.row_bytes_a, i)} * double{x[i]};
    sum.value += product;
    sum.size += std::fabs(product);
  }
  return sum;
}

void add_exactly(const OwnedWork& work, const LoraItem& item, const float* x,
                 std::vector<Exact>& y) {
  const ResidentTerm& term = *work.term;
  const double scale = double{work.scale} * double{term.scale};
  for (std::int64_t k = 0; k < term.rank; ++k) {
    const Exact t = exact_t(term, item, k, x);
    const auto row = static_cast<std::size_t>(item.expert * term.rank + k);
    for (std::int64_t j = 0; j < term.n_out; ++j) {
      const double b = decode_value(term.type_b, term.b + row * term.row_bytes_b, j);
      Exact& to = y[static_cast<std::size_t>(term.out_offset + j)];
      to.value += scale * t.value * b;
      to.size += std::fabs(scale * t.size * b);
    }
  }
  for (std::int64_t j = 0; term.bias != nullptr && j < term.n_out; ++j) {
    Exact& to = y[static_cast<std::size_t>(term.out_offset + j)];
    to.value += scale * double{term.bias[j]};
    to.size += std::fabs(scale * double{term.bias[j]});
  }
}

// The tolerance is the worst case of f32 rounding: a value that passes through n operations is off
// by at most n * 2^-24 of its size. A product passes n_in additions, the scale (three products,
// one of them ours), one product per k, rank additions, and those of the other terms of its row.
void expect_exact(const OwnedSite& site, const Floats& y_before, std::int64_t n_out) {
  Floats before = y_before;
  for (std::int32_t row = 0; row < site.y->n_rows(); ++row) {
    std::vector<Exact> want(static_cast<std::size_t>(n_out));
    for (std::int64_t j = 0; j < n_out; ++j) {
      want[static_cast<std::size_t>(j)] = {before.row(row)[j], std::fabs(before.row(row)[j])};
    }
    double n_operations = 8;
    for (const OwnedWork& work : site.work) {
      for (const LoraItem& item : work.items) {
        if (item.y_row != row) continue;
        const bool reads_x = work.term->site.op != SiteOp::kGetRows;
        add_exactly(work, item, reads_x ? site.x->row(item.x_row) : nullptr, want);
        n_operations += static_cast<double>(work.term->n_in * reads_x + work.term->rank + 4);
      }
    }
    for (std::int64_t j = 0; j < n_out; ++j) {
      const Exact& exact = want[static_cast<std::size_t>(j)];
      ASSERT_NEAR(site.y->row(row)[j], exact.value, n_operations * 0x1p-24 * exact.size)
          << "row " << row << " column " << j;
    }
  }
}

// Runs each test body on every instruction set of this machine.
class LoraKernel : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ASSERT_STREQ(tile_target_name(), hwy::TargetName(GetParam()));
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> found;
#if HWY_ARCH_X86
  constexpr std::int64_t kCompiled = HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | HWY_STATIC_TARGET;
#else
  constexpr std::int64_t kCompiled = HWY_NEON | HWY_STATIC_TARGET;
#endif
  const std::int64_t usable = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & kCompiled;
  for (std::int64_t bit = 1; bit > 0 && bit <= HWY_SCALAR; bit <<= 1) {
    if ((usable & bit) != 0) found.push_back(bit);
    if (bit == HWY_SCALAR) break;
  }
  return found;
}

INSTANTIATE_TEST_SUITE_P(Targets, LoraKernel, testing::ValuesIn(targets()), [](const auto& target) {
  return std::string(hwy::TargetName(target.param));
});

// Rows 0 .. n_rows - 1 dealt at random to works: a row may have no term, one, or several, in an
// order of works that differs from the order of rows.
std::vector<OwnedWork> random_work(const std::vector<const ResidentTerm*>& terms,
                                   std::int32_t n_rows, std::int32_t n_x_rows,
                                   std::mt19937& engine) {
  std::vector<OwnedWork> works;
  for (std::size_t w = 0; w < 2 * terms.size(); ++w) {
    OwnedWork work{terms[engine() % terms.size()], 0.5F + static_cast<float>(w % 3), {}};
    for (std::int32_t row = 0; row < n_rows; ++row) {
      if (engine() % 2 != 0) continue;
      const auto n_experts = static_cast<std::uint32_t>(work.term->n_experts);
      work.items.push_back(
          {static_cast<std::int32_t>(engine() % static_cast<std::uint32_t>(n_x_rows)), row,
           static_cast<std::int32_t>(engine() % n_experts)});
    }
    std::shuffle(work.items.begin(), work.items.end(), engine);
    works.push_back(std::move(work));
  }
  return works;
}

struct Mix {
  std::vector<RandomTerm> shapes;
  std::int64_t n_in = 32;   // columns of x
  std::int64_t n_out = 32;  // columns of y
  std::int32_t n_x_rows = 1;
};

// Two sites over one x, random rows and grouping, 1 to 4 threads: equal to rows alone, bit by bit,
// and to double precision.
void check_mix(ResidentType type, const Mix& mix, std::int32_t n_rows, std::uint32_t seed) {
  SCOPED_TRACE(testing::Message() << "type " << static_cast<int>(type) << " rank "
                                  << mix.shapes[0].rank << " n_in " << mix.n_in << " n_out "
                                  << mix.n_out << " rows " << n_rows);
  RandomFactors random(seed);
  std::mt19937 engine(seed);
  const auto adapter = random_adapter(type, mix.shapes, seed);
  std::vector<const ResidentTerm*> terms;
  for (const ResidentTerm& term : adapter->terms()) terms.push_back(&term);

  const bool reads_x = mix.shapes[0].op != SiteOp::kGetRows;
  Floats x(reads_x ? mix.n_x_rows : 1, mix.n_in, random);
  std::vector<Floats> before(2, Floats(n_rows, mix.n_out, random));
  std::vector<Floats> alone = before;
  std::vector<OwnedSite> sites(2);
  for (std::size_t s = 0; s < 2; ++s) {
    sites[s] = {&x, &alone[s], random_work(terms, n_rows, mix.n_x_rows, engine)};
    run_rows_alone(sites[s]);
    expect_exact(sites[s], before[s], mix.n_out);
  }
  for (int nth = 1; nth <= 4; ++nth) {
    std::vector<Floats> together = before;
    for (std::size_t s = 0; s < 2; ++s) sites[s].y = &together[s];
    run_call(sites, nth);
    for (std::size_t s = 0; s < 2; ++s) {
      ASSERT_EQ(std::memcmp(together[s].data(), alone[s].data(),
                            alone[s].values().size() * sizeof(float)),
                0)
          << "site " << s << " nth " << nth;
    }
  }
}

TEST_P(LoraKernel, RowsDoNotDependOnTheirCompany) {
  std::uint32_t seed = 1;
  for (const ResidentType type : kTypes) {
    for (const std::int64_t rank : {1, 3, 4, 7, 8, 16, 17, 64}) {
      const std::int64_t n_in = 32 + 32 * static_cast<std::int64_t>(seed % 5);
      const std::int64_t n_out = 32 + 32 * static_cast<std::int64_t>(seed % 7);
      const RandomTerm shape{.n_in = n_in, .n_out = n_out, .rank = rank};
      const auto n_rows = static_cast<std::int32_t>(1 + seed * 13 % 40);
      check_mix(type, {{shape, shape, shape}, n_in, n_out, 2 * n_rows}, n_rows, seed);
      ++seed;
    }
  }
}

TEST_P(LoraKernel, OddWidthsAndOffsets) {
  std::uint32_t seed = 100;
  for (const ResidentType type : kTypes) {
    for (const std::int64_t n_in : {1, 7, 33, 100, 576}) {
      for (const std::int64_t n_out : {1, 9, 64, 100}) {
        // Terms that overlap in part, and begin inside a block of q8_0 of the site.
        const RandomTerm first{.n_in = n_in, .n_out = n_out, .rank = 5, .bias = true};
        const RandomTerm second{.n_in = n_in, .n_out = n_out, .rank = 2, .out_offset = 13};
        const auto n_rows = static_cast<std::int32_t>(1 + seed % 6);
        check_mix(type, {{first, second}, n_in, n_out + 13, n_rows}, n_rows, seed);
        ++seed;
      }
    }
  }
}

TEST_P(LoraKernel, EachItemUsesItsExpert) {
  for (const ResidentType type : kTypes) {
    const RandomTerm shape{
        .n_in = 64, .n_out = 96, .rank = 6, .n_experts = 3, .op = SiteOp::kMatMulId};
    check_mix(type, {{shape, shape}, 64, 96, 10}, 21, 200);
  }
}

TEST_P(LoraKernel, LooksUpRowsOfATable) {
  for (const ResidentType type : kTypes) {
    for (const std::int64_t rank : {3, 16, 32}) {
      const RandomTerm shape{.n_in = 50, .n_out = 160, .rank = rank, .op = SiteOp::kGetRows};
      check_mix(type, {{shape, shape}, 50, 160, 50}, 19, 300);
    }
  }
}

TEST_P(LoraKernel, WideOutputsAreDealtInChunks) {
  const RandomTerm shape{.n_in = 32, .n_out = 2600, .rank = 4};
  check_mix(ResidentType::kF16, {{shape}, 32, 2600, 9}, 9, 400);
}

TEST_P(LoraKernel, NothingToDoChangesNothing) {
  RandomFactors random(1);
  const auto adapter = random_adapter(ResidentType::kF16, {RandomTerm{}}, 1);
  Floats x(2, 32, random);
  Floats y(2, 32, random);
  const std::vector<float> before = y.values();
  const OwnedWork none{&adapter->terms()[0], 1.0F, {}};
  run_call({}, 2);
  run_call({{&x, &y, {}}}, 2);
  run_call({{&x, &y, {none, none}}, {&x, &y, {}}}, 3);
  EXPECT_EQ(y.values(), before);
}

TEST_P(LoraKernel, WorksWithoutItemsDoNotShiftOthers) {
  RandomFactors random(1);
  const auto adapter = random_adapter(ResidentType::kF16, {RandomTerm{}, RandomTerm{}}, 1);
  Floats x(2, 32, random);
  Floats y(2, 32, random);
  Floats alone = y;
  const OwnedWork none{&adapter->terms()[0], 1.0F, {}};
  const OwnedWork one{&adapter->terms()[1], 1.0F, {{1, 0, 0}}};
  run_call({{&x, &y, {none, one, none}}, {&x, &y, {none}}}, 2);
  run_call({{&x, &alone, {one}}}, 1);
  EXPECT_EQ(y.values(), alone.values());
}

// Rows that no item names are not even read.
TEST_P(LoraKernel, RowsWithoutATermAreUntouched) {
  RandomFactors random(1);
  const auto adapter = random_adapter(ResidentType::kF16, {RandomTerm{}}, 1);
  Floats x(3, 32, random);
  std::fill_n(x.row(1), 35, std::nanf(""));
  Floats y(3, 32, random);
  const Floats before = y;
  run_call({{&x, &y, {{&adapter->terms()[0], 1.0F, {{0, 0, 0}, {2, 2, 0}}}}}}, 2);
  EXPECT_EQ(std::memcmp(y.row(1), Floats(before).row(1), 32 * sizeof(float)), 0);
  EXPECT_TRUE(std::all_of(y.row(0), y.row(0) + 32, [](float v) { return std::isfinite(v); }));
}

TEST(SpinBarrier, NobodyPassesBeforeTheLastArrives) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  SpinBarrier barrier;
  std::vector<int> rounds(kThreads, 0);
  std::atomic<int> n_wrong{0};
  const auto run = [&](int ith) {
    for (int round = 1; round <= kRounds; ++round) {
      rounds[static_cast<std::size_t>(ith)] = round;
      barrier.arrive_and_wait(kThreads);
      for (const int other : rounds) n_wrong += other != round;
      barrier.arrive_and_wait(kThreads);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int ith = 1; ith < kThreads; ++ith) threads.emplace_back(run, ith);
    run(0);
  }
  EXPECT_EQ(n_wrong, 0);
}

}  // namespace
}  // namespace graft
