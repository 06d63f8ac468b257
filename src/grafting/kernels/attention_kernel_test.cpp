// attend_chunk, fold_chunk and finish_query against softmax attention in double, and the promise of
// bit-equality: a row's result depends on its own cells in order of position and on nothing else.
#include "grafting/kernels/attention_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "modules/residency/half_float.h"

namespace graft {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kTolerance = 1e-5;  // results are averages of values within [-1, 1]

struct Problem {
  int d_k = 64;
  int d_v = 64;
  int group = 2;
  std::int32_t first = 0;   // position of the sequence's first cell
  std::int32_t length = 1;  // cells of the sequence
  std::int32_t n_rows = 1;  // the last rows of the sequence are computed
  CacheType type = CacheType::kF32;
  float softcap = 0.0F;
  std::int32_t window = 0;
  bool alibi = false;
  bool sinks = false;
};

// A type of our own for CacheType::kOther: one signed byte a value, in steps of 1/127; -128 is NaN.
void dequantize_bytes(const void* source, float* target, std::int64_t n) {
  const auto* values = static_cast<const signed char*>(source);
  for (std::int64_t i = 0; i < n; ++i) {
    target[i] = values[i] == -128 ? kNan : static_cast<float>(values[i]) / 127.0F;
  }
}

// Keys or values of a memory with two key heads; ours is the second. Cells that were never written
// hold NaN. `exact` keeps what the kernel must read back, by position.
class Cache {
 public:
  Cache(CacheType type, int d, std::int32_t n_cells)
      : type_(type), d_(static_cast<std::size_t>(d)), bytes_per_value_(width(type)) {
    stride_ = 2 * d_ * bytes_per_value_ + 8;
    bytes_.resize(static_cast<std::size_t>(n_cells) * stride_);
    for (std::int32_t c = 0; c < n_cells; ++c) {
      for (std::size_t i = 0; i < d_; ++i) write(c, i, kNan);
    }
  }

  // Returns the value as the cache holds it.
  float write(std::int32_t cell, std::size_t i, float value) {
    char* at =
        bytes_.data() + static_cast<std::size_t>(cell) * stride_ + (d_ + i) * bytes_per_value_;
    if (type_ == CacheType::kF32) {
      std::memcpy(at, &value, sizeof(value));
      return value;
    }
    if (type_ == CacheType::kF16) {
      const std::uint16_t half = f16_from_f32(value);
      std::memcpy(at, &half, sizeof(half));
      return f32_from_f16(half);
    }
    *at = std::isnan(value) ? static_cast<char>(-128)
                            : static_cast<char>(std::lround(value * 127.0F));
    float read = 0;
    dequantize_bytes(at, &read, 1);
    return read;
  }

  CacheView view() const {
    CacheView view;
    view.base = bytes_.data() + d_ * bytes_per_value_;
    view.cell_stride = stride_;
    view.type = type_;
    view.dequantize = type_ == CacheType::kOther ? dequantize_bytes : nullptr;
    return view;
  }

 private:
  static std::size_t width(CacheType type) {
    return type == CacheType::kF32 ? 4 : type == CacheType::kF16 ? 2 : 1;
  }

  CacheType type_;
  std::size_t d_;
  std::size_t bytes_per_value_;
  std::size_t stride_ = 0;
  std::vector<char> bytes_;
};

using Rows = std::vector<std::vector<float>>;  // [row * group + query head][values]

struct Partial {
  SoftmaxState state;
  std::vector<float> acc;
};

// One sequence in a memory of its own, with the queries of its last rows.
class Sequence {
 public:
  // Another `placement` puts the same values into other cells.
  explicit Sequence(const Problem& problem, std::uint32_t placement = 1)
      : p_(problem),
        n_cells_(problem.length + 40),
        keys_(problem.type, problem.d_k, n_cells_),
        values_(problem.type, problem.d_v, n_cells_) {
    shape_ = {p_.d_k, p_.d_v, p_.group, 1.0F / std::sqrt(static_cast<float>(p_.d_k)), p_.softcap};
    if (p_.softcap != 0.0F) shape_.scale /= p_.softcap;
    place(placement);
    std::mt19937 random(11);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    fill(keys_, p_.d_k, exact_k_, random);
    fill(values_, p_.d_v, exact_v_, random);
    for (std::int32_t i = 0; i < n_queries(); ++i) {
      std::vector<float> q(static_cast<std::size_t>(p_.d_k));
      for (float& value : q) value = 4.0F * uniform(random);
      queries_.push_back(std::move(q));
      sinks_.push_back(uniform(random));
    }
  }

  std::int32_t n_queries() const { return p_.n_rows * p_.group; }
  std::int32_t end() const { return p_.first + p_.length; }
  std::int32_t run_end(std::int32_t query) const {
    return end() - p_.n_rows + query / p_.group + 1;
  }
  std::int32_t run_begin(std::int32_t query) const {
    return p_.window == 0 ? p_.first : std::max(p_.first, run_end(query) - p_.window);
  }
  // The list reaches `before` cells further back and `after` cells further on: cells of NaN.
  void widen_list(std::int32_t before, std::int32_t after) {
    before_ = before;
    after_ = after;
    cells_.insert(cells_.begin(), spare_.begin(), spare_.begin() + before);
    cells_.insert(cells_.end(), spare_.begin(), spare_.begin() + after);
  }
  void poison(std::int32_t position) {
    for (int i = 0; i < p_.d_k; ++i) keys_.write(cell(position), static_cast<std::size_t>(i), kNan);
    for (int i = 0; i < p_.d_v; ++i) {
      values_.write(cell(position), static_cast<std::size_t>(i), kNan);
    }
  }

  // One chunk for queries from .. to - 1.
  std::vector<Partial> partials(std::int32_t from, std::int32_t to, std::int32_t chunk) {
    const CellList list{cells_.data(), p_.first - before_, end() + after_};
    const auto n = static_cast<std::size_t>(to - from);
    Rows scaled(n, std::vector<float>(static_cast<std::size_t>(p_.d_k)));
    Rows acc(n, std::vector<float>(static_cast<std::size_t>(p_.d_v), kNan));
    std::vector<AttentionQuery> queries(n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t at = from + static_cast<std::int32_t>(i);
      scale_query(queries_[static_cast<std::size_t>(at)].data(), shape_.scale, scaled[i].data(),
                  p_.d_k);
      queries[i].q = scaled[i].data();
      queries[i].acc = acc[i].data();
      queries[i].begin = run_begin(at);
      queries[i].end = run_end(at);
      biases_.resize(std::max(biases_.size(), n));
      biases_[i] = list_biases(at);
      queries[i].bias = p_.alibi ? biases_[i].data() : nullptr;
    }
    attend_chunk(shape_, {list, keys_.view(), values_.view()}, chunk, queries, scratch());
    std::vector<Partial> result;
    for (std::size_t i = 0; i < n; ++i) result.push_back({queries[i].state, acc[i]});
    return result;
  }

  std::int32_t n_chunks() const { return (end() - 1) / kAttentionChunk + 1; }

  // Queries from .. to - 1 together, chunk after chunk.
  Rows attend(std::int32_t from, std::int32_t to) {
    std::vector<Partial> running(static_cast<std::size_t>(to - from));
    for (Partial& start : running) start = empty_partial();
    for (std::int32_t chunk = 0; chunk < n_chunks(); ++chunk) {
      fold(running, partials(from, to, chunk));
    }
    return finish(running, from);
  }
  Rows attend_all() { return attend(0, n_queries()); }

  Partial empty_partial() const {
    return {SoftmaxState(), std::vector<float>(static_cast<std::size_t>(p_.d_v), 0.0F)};
  }
  void fold(std::vector<Partial>& running, const std::vector<Partial>& later) const {
    for (std::size_t i = 0; i < running.size(); ++i) {
      fold_chunk(running[i].state, running[i].acc.data(), later[i].state, later[i].acc.data(),
                 p_.d_v);
    }
  }
  Rows finish(const std::vector<Partial>& running, std::int32_t from) const {
    Rows out;
    for (std::size_t i = 0; i < running.size(); ++i) {
      out.emplace_back(static_cast<std::size_t>(p_.d_v), kNan);
      const float* sink = p_.sinks ? &sinks_[static_cast<std::size_t>(from) + i] : nullptr;
      finish_query(running[i].state, running[i].acc.data(), sink, out.back().data(), p_.d_v);
    }
    return out;
  }

  // Largest distance from attention computed in double, in the plainest way.
  double error(const Rows& out) const {
    double worst = 0;
    for (std::int32_t i = 0; i < n_queries(); ++i) {
      const std::vector<double> expected = reference(i);
      for (std::size_t c = 0; c < expected.size(); ++c) {
        const double difference =
            std::abs(expected[c] - static_cast<double>(out[static_cast<std::size_t>(i)][c]));
        if (!(difference <= worst)) worst = difference;  // NaN counts
      }
    }
    return worst;
  }

 private:
  void place(std::uint32_t placement) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(n_cells_));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(placement);
    std::shuffle(order.begin(), order.end(), random);
    cells_.assign(order.begin(), order.begin() + p_.length);
    spare_.assign(order.begin() + p_.length, order.end());
  }
  void fill(Cache& cache, int d, std::vector<std::vector<double>>& exact, std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (std::int32_t i = 0; i < p_.length; ++i) {
      std::vector<double> row;
      for (int c = 0; c < d; ++c) {
        row.push_back(static_cast<double>(cache.write(
            cells_[static_cast<std::size_t>(i)], static_cast<std::size_t>(c), uniform(random))));
      }
      exact.push_back(std::move(row));
    }
  }
  std::int32_t cell(std::int32_t position) const {
    return cells_[static_cast<std::size_t>(position - p_.first + before_)];
  }
  float bias(std::int32_t query, std::int32_t position) const {
    const float slope = 0.01F * static_cast<float>(query % p_.group + 1);
    return slope * static_cast<float>(position - (run_end(query) - 1));
  }
  // NaN wherever the query sees no cell.
  std::vector<float> list_biases(std::int32_t query) const {
    std::vector<float> biases(cells_.size(), kNan);
    for (std::int32_t p = run_begin(query); p < run_end(query); ++p) {
      biases[static_cast<std::size_t>(p - p_.first + before_)] = bias(query, p);
    }
    return biases;
  }
  // Aligned as the kernel wants it, and full of NaN: what a chunk before left there.
  float* scratch() {
    scratch_.assign(attention_scratch_floats(shape_) + 16, kNan);
    const auto address = reinterpret_cast<std::uintptr_t>(scratch_.data());
    return scratch_.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  std::vector<double> reference(std::int32_t query) const {
    const auto at = static_cast<std::size_t>(query);
    std::vector<double> scores;
    double top = p_.sinks ? static_cast<double>(sinks_[at]) : -1e300;
    for (std::int32_t p = run_begin(query); p < run_end(query); ++p) {
      const std::vector<double>& k = exact_k_[static_cast<std::size_t>(p - p_.first)];
      double score = 0;
      for (std::size_t c = 0; c < k.size(); ++c) {
        score += static_cast<double>(queries_[at][c]) * k[c];
      }
      score /= std::sqrt(static_cast<double>(p_.d_k));
      const auto cap = static_cast<double>(p_.softcap);
      if (cap != 0.0) score = cap * std::tanh(score / cap);
      if (p_.alibi) score += static_cast<double>(bias(query, p));
      scores.push_back(score);
      top = std::max(top, score);
    }
    double sum = p_.sinks ? std::exp(static_cast<double>(sinks_[at]) - top) : 0.0;
    std::vector<double> out(static_cast<std::size_t>(p_.d_v), 0.0);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - top);
      sum += weight;
      const auto position = static_cast<std::size_t>(run_begin(query) - p_.first) + i;
      for (std::size_t c = 0; c < out.size(); ++c) out[c] += weight * exact_v_[position][c];
    }
    for (double& value : out) value /= sum;
    return out;
  }

  Problem p_;
  std::int32_t n_cells_;
  Cache keys_;
  Cache values_;
  AttentionShape shape_;
  std::int32_t before_ = 0;
  std::int32_t after_ = 0;
  std::vector<std::int32_t> cells_;  // the list, in order of position
  std::vector<std::int32_t> spare_;  // cells that nobody wrote: NaN
  std::vector<std::vector<double>> exact_k_;
  std::vector<std::vector<double>> exact_v_;
  Rows queries_;
  std::vector<float> sinks_;
  Rows biases_;
  std::vector<float> scratch_;
};

// Bits, not values: 0 and -0 differ here, and a NaN equals itself.
bool same_bits(const Rows& a, const Rows& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

// What the bit-equality tests run on: every feature, and borders of blocks and chunks.
std::vector<Problem> mixed_problems() {
  return {
      {.d_k = 64, .d_v = 64, .group = 3, .first = 0, .length = 150, .n_rows = 5},
      {.d_k = 16, .d_v = 16, .group = 8, .first = 61, .length = 9, .n_rows = 8},
      {.d_k = 80,
       .d_v = 80,
       .group = 5,
       .first = 0,
       .length = 513,
       .n_rows = 3,
       .type = CacheType::kF16,
       .softcap = 20.0F},
      {.d_k = 128,
       .d_v = 64,
       .group = 4,
       .first = 300,
       .length = 900,
       .n_rows = 8,
       .type = CacheType::kOther,
       .alibi = true,
       .sinks = true},
      {.d_k = 64,
       .d_v = 128,
       .group = 2,
       .first = 0,
       .length = 1100,
       .n_rows = 8,
       .type = CacheType::kF16,
       .softcap = 5.0F,
       .window = 70,
       .alibi = true,
       .sinks = true},
  };
}

TEST(AttentionKernel, AgreesWithDoubleForEveryHeadSizeGroupAndType) {
  for (const int d : {16, 64, 80, 128, 256}) {
    for (int group = 1; group <= 8; ++group) {
      for (const CacheType type : {CacheType::kF16, CacheType::kF32, CacheType::kOther}) {
        const Problem problem{.d_k = d,
                              .d_v = d,
                              .group = group,
                              .first = 0,
                              .length = 75,
                              .n_rows = 3,
                              .type = type};
        Sequence sequence(problem);
        EXPECT_LT(sequence.error(sequence.attend_all()), kTolerance)
            << "head size " << d << ", group " << group << ", type " << static_cast<int>(type);
      }
    }
  }
}

TEST(AttentionKernel, AgreesWithDoubleAtBordersOfBlocksAndChunks) {
  for (const std::int32_t first : {0, 63, 500}) {
    for (const std::int32_t length : {1, 2, 63, 64, 65, 511, 512, 513, 1030, 1600}) {
      const std::int32_t n_rows = std::min(length, 2);
      Sequence sequence(
          {.d_k = 16, .d_v = 32, .group = 1, .first = first, .length = length, .n_rows = n_rows});
      EXPECT_LT(sequence.error(sequence.attend_all()), kTolerance) << first << " + " << length;
    }
  }
}

TEST(AttentionKernel, AgreesWithDoubleForSoftcapBiasSinksAndWindows) {
  for (const CacheType type : {CacheType::kF16, CacheType::kF32, CacheType::kOther}) {
    for (int features = 0; features < 16; ++features) {
      Problem problem{
          .d_k = 64, .d_v = 64, .group = 3, .first = 5, .length = 600, .n_rows = 4, .type = type};
      problem.softcap = (features & 1) != 0 ? 2.0F : 0.0F;
      problem.window = (features & 2) != 0 ? 130 : 0;
      problem.alibi = (features & 4) != 0;
      problem.sinks = (features & 8) != 0;
      Sequence sequence(problem);
      EXPECT_LT(sequence.error(sequence.attend_all()), kTolerance) << "features " << features;
    }
  }
}

// The reference tells the features apart, so the test above can fail.
TEST(AttentionKernel, EachFeatureMovesTheResultFarBeyondTheTolerance) {
  const Problem plain{.d_k = 64, .d_v = 64, .group = 2, .first = 5, .length = 200, .n_rows = 2};
  Sequence sequence(plain);
  const Rows out = sequence.attend_all();
  for (int feature = 0; feature < 4; ++feature) {
    Problem other = plain;
    if (feature == 0) other.softcap = 2.0F;
    if (feature == 1) other.window = 199;  // one cell fewer
    if (feature == 2) other.alibi = true;
    if (feature == 3) other.sinks = true;
    EXPECT_GT(Sequence(other).error(out), 20 * kTolerance) << feature;
  }
}

TEST(AttentionKernel, QueriesTogetherOrOneByOneAreTheSameBits) {
  for (const Problem& problem : mixed_problems()) {
    Sequence sequence(problem);
    const Rows together = sequence.attend_all();
    Rows single;
    for (std::int32_t i = 0; i < sequence.n_queries(); ++i) {
      single.push_back(sequence.attend(i, i + 1)[0]);
    }
    EXPECT_TRUE(same_bits(single, together)) << problem.length;
    Rows by_threes;
    for (std::int32_t i = 0; i < sequence.n_queries(); i += 3) {
      for (auto& row : sequence.attend(i, std::min(i + 3, sequence.n_queries()))) {
        by_threes.push_back(std::move(row));
      }
    }
    EXPECT_TRUE(same_bits(by_threes, together)) << problem.length;
  }
}

TEST(AttentionKernel, AListInsideALargerListGivesTheSameBits) {
  for (const Problem& problem : mixed_problems()) {
    Sequence narrow(problem);
    Sequence wide(problem);
    wide.widen_list(std::min(problem.first, 33), 30);
    EXPECT_TRUE(same_bits(wide.attend_all(), narrow.attend_all())) << problem.length;
  }
}

TEST(AttentionKernel, CellsElsewhereInMemoryGiveTheSameBits) {
  for (const Problem& problem : mixed_problems()) {
    EXPECT_TRUE(same_bits(Sequence(problem, 99).attend_all(), Sequence(problem, 1).attend_all()))
        << problem.length;
  }
}

TEST(AttentionKernel, ChunksComputedSeparatelyAndFoldedInOrderAreTheSameBits) {
  for (const Problem& problem : mixed_problems()) {
    Sequence sequence(problem);
    const std::int32_t n = sequence.n_queries();
    std::vector<std::vector<Partial>> chunks(static_cast<std::size_t>(sequence.n_chunks()));
    for (std::int32_t chunk = sequence.n_chunks() - 1; chunk >= 0; --chunk) {
      chunks[static_cast<std::size_t>(chunk)] = sequence.partials(0, n, chunk);
    }
    std::vector<Partial> running(static_cast<std::size_t>(n), sequence.empty_partial());
    for (const std::vector<Partial>& later : chunks) sequence.fold(running, later);
    EXPECT_TRUE(same_bits(sequence.finish(running, 0), sequence.attend_all())) << problem.length;
  }
}

// Rows of one call see nested runs. A later row's own cell may hold anything.
TEST(AttentionKernel, NanInCellsThatAQueryDoesNotSeeDoesNotReachIt) {
  for (const Problem& problem : mixed_problems()) {
    Sequence clean(problem);
    Sequence poisoned(problem);
    poisoned.poison(poisoned.end() - 1);
    const std::int32_t n_before = (problem.n_rows - 1) * problem.group;
    const Rows expected = clean.attend_all();
    const Rows out = poisoned.attend_all();
    const Rows before(out.begin(), out.begin() + n_before);
    EXPECT_TRUE(same_bits(before, Rows(expected.begin(), expected.begin() + n_before)))
        << problem.length;
    EXPECT_TRUE(std::isnan(out.back()[0]));  // the last row does see it
  }
}

TEST(AttentionKernel, NanBeforeAWindowDoesNotReachIt) {
  const Problem problem{.d_k = 64,
                        .d_v = 64,
                        .group = 2,
                        .first = 0,
                        .length = 140,
                        .n_rows = 3,
                        .type = CacheType::kF16,
                        .window = 69};
  Sequence clean(problem);
  Sequence poisoned(problem);
  for (std::int32_t p = 0; p < poisoned.run_begin(poisoned.n_queries() - 1); ++p) {
    poisoned.poison(p);
  }
  const Rows expected = clean.attend_all();
  const Rows out = poisoned.attend_all();
  EXPECT_TRUE(same_bits({out[4], out[5]}, {expected[4], expected[5]}));
  EXPECT_TRUE(std::isnan(out[0][0]));  // the first row's window begins two cells earlier
}

TEST(AttentionKernel, AQueryThatSeesNothingInAChunkLeavesItEmpty) {
  Sequence sequence(
      {.d_k = 16, .d_v = 16, .group = 1, .first = 0, .length = 700, .n_rows = 1, .window = 20});
  const Partial nothing = sequence.partials(0, 1, 0)[0];
  EXPECT_EQ(nothing.state.max, -kInfinity);
  EXPECT_EQ(nothing.state.sum, 0.0F);
  EXPECT_EQ(nothing.acc, std::vector<float>(16, 0.0F));
}

TEST(AttentionKernel, ARowThatSeesNothingGetsZeros) {
  const std::vector<float> acc(16, 0.0F);
  const float sink = 1.0F;
  for (const float* with : {static_cast<const float*>(nullptr), &sink}) {
    std::vector<float> out(16, kNan);
    finish_query(SoftmaxState(), acc.data(), with, out.data(), 16);
    EXPECT_EQ(out, acc);
  }
  SoftmaxState state;
  std::vector<float> running(16, 0.0F);
  fold_chunk(state, running.data(), SoftmaxState(), acc.data(), 16);
  EXPECT_EQ(state.max, -kInfinity);
  EXPECT_EQ(state.sum, 0.0F);
  EXPECT_EQ(running, acc);
}

// Scores far beyond what exp can hold: the running maximum must carry them, up and down.
TEST(AttentionKernel, LargeScoresNeitherOverflowNorVanish) {
  for (const float sign : {1.0F, -1.0F}) {
    const AttentionShape shape{16, 16, 1, 1.0F, 0.0F};
    Cache keys(CacheType::kF32, 16, 2);
    Cache values(CacheType::kF32, 16, 2);
    for (std::size_t i = 0; i < 16; ++i) {
      keys.write(0, i, -30.0F * sign);
      keys.write(1, i, 30.0F * sign);
      values.write(0, i, 1.0F);
      values.write(1, i, 2.0F);
    }
    const std::int32_t cells[] = {0, 1};  // positions 63 and 64: two blocks
    alignas(64) float scratch[2 * kAttentionBlock * 16];
    alignas(64) float q[16];
    std::fill(q, q + 16, 10.0F);  // scores of 4800 and -4800
    std::vector<float> acc(16);
    AttentionQuery query;
    query.q = q;
    query.acc = acc.data();
    query.begin = 63;
    query.end = 65;
    attend_chunk(shape, {{cells, 63, 65}, keys.view(), values.view()}, 0, {&query, 1}, scratch);
    std::vector<float> out(16);
    finish_query(query.state, query.acc, nullptr, out.data(), 16);
    EXPECT_EQ(out, std::vector<float>(16, sign > 0 ? 2.0F : 1.0F));
  }
}

}  // namespace
}  // namespace graft
