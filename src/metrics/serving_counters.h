// ServingCounters: what the engine thread counts. It writes relaxed atomics only; any thread may
// take a snapshot, whose numbers need not belong to the same instant.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace graft {

// Upper bounds of the step time histogram; the last bucket has none.
inline constexpr std::array<double, 11> kStepTimeBoundsMs = {1,   2,   5,   10,   20,  50,
                                                             100, 200, 500, 1000, 5000};

// Plain values. Counters count up from the start of the process.
struct ServingSnapshot {
  // How it stands.
  std::int64_t n_running = 0;
  std::int64_t n_waiting = 0;
  std::int64_t n_cells = 0;
  std::int64_t n_free_cells = 0;  // without those of the prefix cache
  std::int64_t n_prefix_hot_cells = 0;
  std::int64_t n_prefix_hot_bytes = 0;
  std::int64_t n_prefix_warm_bytes = 0;
  bool healthy = true;  // false while the engine fails whole steps
  // Counters.
  std::int64_t n_submitted = 0;
  std::int64_t n_rejected = 0;
  std::int64_t n_finished = 0;
  std::int64_t n_cancelled = 0;
  std::int64_t n_failed = 0;
  std::int64_t n_prompt_tokens = 0;  // computed; a preempted request's count again
  std::int64_t n_generated_tokens = 0;
  std::int64_t n_preemptions = 0;
  std::int64_t n_steps = 0;
  std::int64_t n_failed_steps = 0;  // whose decode failed, retries not counted
  // Of requests that looked into the prefix cache: by the slowest tier they took tokens from.
  std::int64_t n_prefix_hot_hits = 0;
  std::int64_t n_prefix_warm_hits = 0;
  std::int64_t n_prefix_misses = 0;
  std::int64_t n_prefix_hot_evictions = 0;
  std::int64_t n_prefix_warm_evictions = 0;
  std::int64_t n_prefix_hit_tokens = 0;
  // Time of whole steps.
  std::int64_t step_time_us = 0;
  std::array<std::int64_t, kStepTimeBoundsMs.size() + 1> step_time_counts = {};
};

class ServingCounters {
 public:
  using Counter = std::atomic<std::int64_t>;

  static void add(Counter& counter, std::int64_t n = 1) {
    counter.fetch_add(n, std::memory_order_relaxed);
  }
  static void set(Counter& gauge, std::int64_t value) {
    gauge.store(value, std::memory_order_relaxed);
  }

  void record_step(std::int64_t time_us);
  ServingSnapshot snapshot() const;

  Counter n_running{0};
  Counter n_waiting{0};
  Counter n_cells{0};
  Counter n_free_cells{0};
  Counter n_steps_failed_in_a_row{0};
  Counter n_submitted{0};
  Counter n_rejected{0};
  Counter n_finished{0};
  Counter n_cancelled{0};
  Counter n_failed{0};
  Counter n_prompt_tokens{0};
  Counter n_generated_tokens{0};
  Counter n_preemptions{0};
  Counter n_failed_steps{0};
  Counter n_prefix_hot_cells{0};
  Counter n_prefix_hot_bytes{0};
  Counter n_prefix_warm_bytes{0};
  Counter n_prefix_hot_hits{0};
  Counter n_prefix_warm_hits{0};
  Counter n_prefix_misses{0};
  Counter n_prefix_hot_evictions{0};
  Counter n_prefix_warm_evictions{0};
  Counter n_prefix_hit_tokens{0};

 private:
  Counter n_steps_{0};
  Counter step_time_us_{0};
  std::array<Counter, kStepTimeBoundsMs.size() + 1> step_time_counts_ = {};
};

}  // namespace graft
