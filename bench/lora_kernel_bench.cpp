// The low-rank kernel at the shapes of a 135M model (30 layers, 7 projections of rank 16) against
// what the machine can do: reading memory once (decode) and multiply-adds from registers (prefill).
// Usage: lora_kernel_bench [--benchmark_filter=...]. Times are of one whole step or one call; the
// counters best_* are taken from the fastest iteration, of a step the fastest of each of its calls,
// because a shared machine only adds time.

#include <benchmark/benchmark.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>

#include "grafting/kernels/lora_kernel.h"
#include "grafting/kernels/random_adapter.h"

namespace graft {
namespace {

constexpr std::int64_t kRank = 16;
constexpr int kLayers = 30;

// Two threads on one core would take turns at every barrier.
void pin_to_core([[maybe_unused]] int core) {
#if defined(__linux__)
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core), &cores);
  pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
#endif
}

// Threads that wait for work spinning, as ggml's pool does within a graph.
class SpinningPool {
 public:
  explicit SpinningPool(int nth) : nth_(nth) {
    pin_to_core(0);
    for (int ith = 1; ith < nth; ++ith) {
      threads_.emplace_back([this, ith] {
        pin_to_core(ith);
        for (;;) {
          barrier_.arrive_and_wait(nth_);
          if (work_ == nullptr) return;
          (*work_)(ith);
          barrier_.arrive_and_wait(nth_);
        }
      });
    }
  }
  ~SpinningPool() {
    work_ = nullptr;
    barrier_.arrive_and_wait(nth_);
  }
  SpinningPool(const SpinningPool&) = delete;
  SpinningPool& operator=(const SpinningPool&) = delete;

  void run(const std::function<void(int)>& work) {
    work_ = &work;
    barrier_.arrive_and_wait(nth_);
    work(0);
    barrier_.arrive_and_wait(nth_);
  }

 private:
  int nth_;
  const std::function<void(int)>* work_ = nullptr;
  SpinBarrier barrier_;
  std::vector<std::jthread> threads_;
};

// Measures `work(ith)` on nth threads; returns the seconds of the fastest iteration.
double measure(benchmark::State& state, int nth, const std::function<void(int)>& work) {
  SpinningPool pool(nth);
  double best = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(work);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(took.count());
    best = std::min(best, took.count());
  }
  state.counters["best_us"] = best * 1e6;
  return best;
}

struct Projection {
  std::int64_t n_in;
  std::int64_t n_out;
  int call;  // projections of one call share x
};
constexpr Projection kProjections[] = {{576, 576, 0},  {576, 192, 1},  {576, 192, 2}, {576, 576, 3},
                                       {576, 1536, 4}, {576, 1536, 4}, {1536, 576, 5}};
constexpr std::size_t kCalls = 6;

std::vector<RandomTerm> model_terms() {
  std::vector<RandomTerm> terms;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Projection& p : kProjections) {
      terms.push_back({.n_in = p.n_in, .n_out = p.n_out, .rank = kRank});
    }
  }
  return terms;
}

// The adapter work of one decode step of n_rows rows, row i with adapter i % n_adapters.
class DecodeStep {
 public:
  DecodeStep(ResidentType type, int n_rows, int n_adapters)
      : x_(static_cast<std::size_t>(n_rows) * 1536, 0.5F),
        y_(std::size(kProjections) * static_cast<std::size_t>(n_rows) * 1536) {
    for (int i = 0; i < n_adapters; ++i) {
      adapters_.push_back(random_adapter(type, model_terms(), static_cast<std::uint32_t>(i)));
      items_.emplace_back();
      for (std::int32_t row = i; row < n_rows; row += n_adapters) {
        items_.back().push_back({row, row, 0});
      }
    }
    for (std::size_t layer = 0; layer < kLayers; ++layer) add_layer(layer, n_rows);
    std::size_t n_scratch = 0;
    for (const auto& call : calls_) n_scratch = std::max(n_scratch, lora_scratch_floats(call));
    scratch_.resize(n_scratch + 16);
    best_seconds_.resize(calls_.size(), 1e9);
  }

  void run(int ith, int nth) {
    void* start = scratch_.data();
    std::size_t room = scratch_.size() * sizeof(float);
    auto* scratch = static_cast<float*>(std::align(64, 1, start, room));
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      lora_apply(calls_[i], scratch, barrier_, ith, nth);
      between_nodes_.arrive_and_wait(nth);
      if (ith == 0) {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        best_seconds_[i] = std::min(best_seconds_[i], took.count());
      }
    }
  }

  // The sum over all calls of each one's fastest time.
  double best_seconds() const {
    return std::accumulate(best_seconds_.begin(), best_seconds_.end(), 0.0);
  }

  std::size_t factor_bytes() const {
    std::size_t bytes = 0;
    for (const auto& adapter : adapters_) bytes += adapter->arena_bytes();
    return bytes;
  }
  const std::vector<std::shared_ptr<const ResidentAdapter>>& adapters() const { return adapters_; }

 private:
  void add_layer(std::size_t layer, int n_rows) {
    calls_.resize(calls_.size() + kCalls);
    for (std::size_t p = 0; p < std::size(kProjections); ++p) {
      const Projection& shape = kProjections[p];
      auto& works = works_.emplace_back(std::make_unique<std::vector<LoraWork>>());
      for (std::size_t i = 0; i < adapters_.size(); ++i) {
        const std::size_t term = layer * std::size(kProjections) + p;
        works->push_back({&adapters_[i]->terms()[term], 1e-3F, items_[i]});
      }
      float* y = y_.data() + p * static_cast<std::size_t>(n_rows) * 1536;
      calls_[layer * kCalls + static_cast<std::size_t>(shape.call)].push_back(
          {reinterpret_cast<const char*>(x_.data()), 1536 * sizeof(float),
           reinterpret_cast<char*>(y), static_cast<std::size_t>(shape.n_out) * sizeof(float),
           *works});
    }
  }

  std::vector<std::shared_ptr<const ResidentAdapter>> adapters_;
  std::vector<std::vector<LoraItem>> items_;
  std::vector<std::unique_ptr<std::vector<LoraWork>>> works_;
  std::vector<std::vector<LoraSite>> calls_;
  std::vector<float> x_;
  std::vector<float> y_;
  std::vector<float> scratch_;
  std::vector<double> best_seconds_;
  SpinBarrier barrier_;
  SpinBarrier between_nodes_;
};

// Arguments: resident type, rows, adapters, threads.
void decode_step(benchmark::State& state) {
  const auto nth = static_cast<int>(state.range(3));
  DecodeStep step(static_cast<ResidentType>(state.range(0)), static_cast<int>(state.range(1)),
                  static_cast<int>(state.range(2)));
  measure(state, nth, [&](int ith) { step.run(ith, nth); });
  const double best = step.best_seconds();
  state.counters["best_us"] = best * 1e6;
  state.counters["factor_MB"] = static_cast<double>(step.factor_bytes()) / 1e6;
  state.counters["best_GB/s"] = static_cast<double>(step.factor_bytes()) / best / 1e9;
}

std::uint64_t sum_bytes(const std::byte* bytes, std::size_t n_bytes) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(bytes);
  std::uint64_t sum[8] = {};
  for (std::size_t i = 0; i + 8 <= n_bytes / 8; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sum[lane] += words[i + lane];
  }
  return std::accumulate(std::begin(sum), std::end(sum), std::uint64_t{0});
}

// The limit for decode steps: the same arenas, each read from front to end by all threads.
void read_factors(benchmark::State& state) {
  const auto nth = static_cast<int>(state.range(1));
  DecodeStep step(ResidentType::kF16, 8, static_cast<int>(state.range(0)));
  const double best = measure(state, nth, [&](int ith) {
    std::uint64_t sum = 0;
    for (const auto& adapter : step.adapters()) {
      const std::size_t part = adapter->arena_bytes() / static_cast<std::size_t>(nth) / 64 * 64;
      sum += sum_bytes(adapter->terms()[0].a + static_cast<std::size_t>(ith) * part, part);
    }
    benchmark::DoNotOptimize(sum);
  });
  state.counters["factor_MB"] = static_cast<double>(step.factor_bytes()) / 1e6;
  state.counters["best_GB/s"] = static_cast<double>(step.factor_bytes()) / best / 1e9;
}

// 512 rows of one adapter. Arguments: resident type, n_in, n_out, threads.
void prefill(benchmark::State& state) {
  constexpr std::int64_t kRows = 512;
  const std::int64_t n_in = state.range(1);
  const std::int64_t n_out = state.range(2);
  const auto nth = static_cast<int>(state.range(3));
  const auto adapter = random_adapter(static_cast<ResidentType>(state.range(0)),
                                      {{.n_in = n_in, .n_out = n_out, .rank = kRank}}, 1);
  std::vector<LoraItem> items;
  for (std::int32_t row = 0; row < kRows; ++row) items.push_back({row, row, 0});
  std::vector<float> x(static_cast<std::size_t>(kRows * n_in), 0.5F);
  std::vector<float> y(static_cast<std::size_t>(kRows * n_out));
  std::vector<float> scratch(static_cast<std::size_t>(kRows * kRank));
  const std::vector<LoraWork> work = {{&adapter->terms()[0], 1e-3F, items}};
  const std::vector<LoraSite> sites = {
      {reinterpret_cast<const char*>(x.data()), static_cast<std::size_t>(n_in) * sizeof(float),
       reinterpret_cast<char*>(y.data()), static_cast<std::size_t>(n_out) * sizeof(float), work}};
  SpinBarrier barrier;
  const double best =
      measure(state, nth, [&](int ith) { lora_apply(sites, scratch.data(), barrier, ith, nth); });
  const auto n_flops = static_cast<double>(2 * kRows * kRank * (n_in + n_out));
  state.counters["best_GFLOP/s"] = n_flops / best / 1e9;
}

#if defined(__x86_64__)
using Vector512 = float __attribute__((vector_size(64)));

__attribute__((target("avx512f"))) float multiply_add(std::int64_t n) {
  Vector512 sums[12] = {};
  for (auto& sum : sums) asm volatile("" : "+v"(sum));  // or equal sums become one
  Vector512 factor = {};
  factor += 1.0F + 1e-7F * static_cast<float>(n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (auto& sum : sums) sum = sum * factor + factor;
    asm volatile("" : "+v"(factor));
  }
  Vector512 total = {};
  for (const auto& sum : sums) total += sum;
  return total[0];
}

// The limit for prefill: multiply-adds on 512-bit registers.
void multiply_add_limit(benchmark::State& state) {
  if (!__builtin_cpu_supports("avx512f")) {
    state.SkipWithError("needs AVX-512");
    return;
  }
  const auto nth = static_cast<int>(state.range(0));
  constexpr std::int64_t kLoops = 20000;
  const double best =
      measure(state, nth, [](int) { benchmark::DoNotOptimize(multiply_add(kLoops)); });
  state.counters["best_GFLOP/s"] = nth * static_cast<double>(kLoops) * 12 * 16 * 2 / best / 1e9;
}
BENCHMARK(multiply_add_limit)->Arg(1)->Arg(2)->UseManualTime();
#endif

constexpr auto kF16 = static_cast<std::int64_t>(ResidentType::kF16);
constexpr auto kBF16 = static_cast<std::int64_t>(ResidentType::kBF16);
constexpr auto kQ8 = static_cast<std::int64_t>(ResidentType::kQ8_0);

BENCHMARK(read_factors)
    ->ArgNames({"adapters", "nth"})
    ->ArgsProduct({{1, 8}, {1, 2}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(decode_step)
    ->ArgNames({"type", "rows", "adapters", "nth"})
    ->ArgsProduct({{kF16, kBF16, kQ8}, {8}, {1, 8}, {1, 2}})
    ->Args({kF16, 1, 1, 1})
    ->Args({kF16, 1, 1, 2})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(prefill)
    ->ArgNames({"type", "n_in", "n_out", "nth"})
    ->ArgsProduct({{kF16, kQ8}, {576}, {192, 576, 1536}, {1, 2}})
    ->ArgsProduct({{kF16, kQ8}, {1536}, {576}, {1, 2}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace graft

BENCHMARK_MAIN();
