// ServingCounters: what the engine thread counts. It writes relaxed atomics only; any thread may
// take a snapshot, whose numbers need not belong to the same instant.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "metrics/atomic_histogram.h"
#include "metrics/buckets.h"
#include "metrics/module_table.h"

namespace graft {

// What a step did.
struct StepRecord {
  std::int64_t time_us = 0;
  std::int64_t n_tokens = 0;  // computed, prompts and answers together
};

// A token of an answer.
struct TokenRecord {
  bool is_first = false;
  std::int64_t since_us = 0;  // since submission for the first one, else since the one before
};

// A request that is over.
struct RequestRecord {
  enum class Outcome { kStopped, kLength, kCancelled, kFailed };
  Outcome outcome = Outcome::kStopped;
  bool was_started = false;
  std::optional<std::int64_t> prepare_us = {};  // the client's request was complete to submission
  std::int64_t queue_us = 0;
  std::int64_t prefill_us = 0;  // admission to first token
  std::int64_t decode_us = 0;   // first token to last
  std::int64_t whole_us = 0;    // submission to end
  std::int64_t n_prompt_tokens = 0;
  std::int64_t n_cached_tokens = 0;  // of the prompt, not computed
  std::int64_t n_generated_tokens = 0;
};

// Plain values. Counters count up from the start of the process.
struct ServingSnapshot {
  // How it stands.
  std::int64_t n_running = 0;
  std::int64_t n_waiting = 0;
  std::int64_t n_cells = 0;
  std::int64_t n_free_cells = 0;  // without those of the prefix cache
  std::int64_t n_idle_cells = 0;  // hold nothing but cached beginnings; free when needed
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
  std::int64_t n_stopped = 0;  // of those that finished
  std::int64_t n_length = 0;
  HistogramSnapshot step_time_us;
  HistogramSnapshot step_tokens;
  HistogramSnapshot first_token_us;
  HistogramSnapshot inter_token_us;
  // Of requests that finished.
  HistogramSnapshot prepare_us;
  HistogramSnapshot queue_us;
  HistogramSnapshot prefill_us;
  HistogramSnapshot decode_us;
  HistogramSnapshot inference_us;  // prefill and decode
  HistogramSnapshot request_us;
  HistogramSnapshot prompt_tokens;
  HistogramSnapshot generated_tokens;
};

// The series that a request counts for. Empty for one that is counted nowhere.
using SeriesList = std::span<ModuleSeries* const>;

class ServingCounters {
 public:
  using Counter = std::atomic<std::int64_t>;

  static void add(Counter& counter, std::int64_t n = 1) {
    counter.fetch_add(n, std::memory_order_relaxed);
  }
  static void set(Counter& gauge, std::int64_t value) {
    gauge.store(value, std::memory_order_relaxed);
  }

  // Of the engine thread.
  void record_step(const StepRecord& step);
  void record_token(const TokenRecord& token, SeriesList series);
  void record_end(const RequestRecord& request, SeriesList series);

  ServingSnapshot snapshot() const;
  ModuleTable& modules() { return modules_; }
  const ModuleTable& modules() const { return modules_; }

  Counter n_running{0};
  Counter n_waiting{0};
  Counter n_cells{0};
  Counter n_free_cells{0};
  Counter n_idle_cells{0};
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
  Counter n_stopped_{0};
  Counter n_length_{0};
  AtomicHistogram step_time_us_{kStepTimeBoundsUs};
  AtomicHistogram step_tokens_{kStepTokensBounds};
  AtomicHistogram first_token_us_{kFirstTokenBoundsUs};
  AtomicHistogram inter_token_us_{kInterTokenBoundsUs};
  AtomicHistogram prepare_us_{kPrepareTimeBoundsUs};
  AtomicHistogram queue_us_{kRequestTimeBoundsUs};
  AtomicHistogram prefill_us_{kRequestTimeBoundsUs};
  AtomicHistogram decode_us_{kRequestTimeBoundsUs};
  AtomicHistogram inference_us_{kRequestTimeBoundsUs};
  AtomicHistogram request_us_{kRequestTimeBoundsUs};
  AtomicHistogram prompt_tokens_{kRequestTokensBounds};
  AtomicHistogram generated_tokens_{kRequestTokensBounds};
  ModuleTable modules_;
};

}  // namespace graft
