#include "metrics/serving_counters.h"

namespace graft {

namespace {

// A step that fails once may be one request's fault; several in a row are the engine's.
constexpr std::int64_t kUnhealthyAfterFailedSteps = 3;

std::int64_t read(const ServingCounters::Counter& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

void ServingCounters::record_step(std::int64_t time_us) {
  add(n_steps_);
  add(step_time_us_, time_us);
  std::size_t bucket = 0;
  while (bucket < kStepTimeBoundsMs.size() &&
         static_cast<double>(time_us) > 1000 * kStepTimeBoundsMs[bucket]) {
    ++bucket;
  }
  add(step_time_counts_[bucket]);
}

ServingSnapshot ServingCounters::snapshot() const {
  ServingSnapshot snapshot;
  snapshot.n_running = read(n_running);
  snapshot.n_waiting = read(n_waiting);
  snapshot.n_cells = read(n_cells);
  snapshot.n_free_cells = read(n_free_cells);
  snapshot.healthy = read(n_steps_failed_in_a_row) < kUnhealthyAfterFailedSteps;
  snapshot.n_submitted = read(n_submitted);
  snapshot.n_rejected = read(n_rejected);
  snapshot.n_finished = read(n_finished);
  snapshot.n_cancelled = read(n_cancelled);
  snapshot.n_failed = read(n_failed);
  snapshot.n_prompt_tokens = read(n_prompt_tokens);
  snapshot.n_generated_tokens = read(n_generated_tokens);
  snapshot.n_preemptions = read(n_preemptions);
  snapshot.n_prefix_hot_cells = read(n_prefix_hot_cells);
  snapshot.n_prefix_hot_bytes = read(n_prefix_hot_bytes);
  snapshot.n_prefix_warm_bytes = read(n_prefix_warm_bytes);
  snapshot.n_prefix_hot_hits = read(n_prefix_hot_hits);
  snapshot.n_prefix_warm_hits = read(n_prefix_warm_hits);
  snapshot.n_prefix_misses = read(n_prefix_misses);
  snapshot.n_prefix_hot_evictions = read(n_prefix_hot_evictions);
  snapshot.n_prefix_warm_evictions = read(n_prefix_warm_evictions);
  snapshot.n_prefix_hit_tokens = read(n_prefix_hit_tokens);
  snapshot.n_steps = read(n_steps_);
  snapshot.n_failed_steps = read(n_failed_steps);
  snapshot.step_time_us = read(step_time_us_);
  for (std::size_t i = 0; i < step_time_counts_.size(); ++i) {
    snapshot.step_time_counts[i] = read(step_time_counts_[i]);
  }
  return snapshot;
}

}  // namespace graft
