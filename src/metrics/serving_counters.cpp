#include "metrics/serving_counters.h"

namespace graft {

namespace {

// A step that fails once may be one request's fault; several in a row are the engine's.
constexpr std::int64_t kUnhealthyAfterFailedSteps = 3;

using Outcome = RequestRecord::Outcome;

std::int64_t read(const ServingCounters::Counter& counter) {
  return counter.load(std::memory_order_relaxed);
}

ModuleSeries::Counter* outcome_of(ModuleSeries& series, Outcome outcome) {
  switch (outcome) {
    case Outcome::kStopped: return &series.n_stopped;
    case Outcome::kLength: return &series.n_length;
    case Outcome::kCancelled: return &series.n_cancelled;
    case Outcome::kFailed: break;
  }
  return &series.n_failed;
}

}  // namespace

void ServingCounters::record_step(const StepRecord& step) {
  step_time_us_.record(step.time_us);
  step_tokens_.record(step.n_tokens);
}

void ServingCounters::record_token(const TokenRecord& token, SeriesList series) {
  add(n_generated_tokens);
  (token.is_first ? first_token_us_ : inter_token_us_).record(token.since_us);
  for (ModuleSeries* one : series) {
    add(one->n_generated_tokens);
    (token.is_first ? one->first_token_us : one->inter_token_us).record(token.since_us);
  }
}

void ServingCounters::record_end(const RequestRecord& request, SeriesList series) {
  for (ModuleSeries* one : series) {
    add(*outcome_of(*one, request.outcome));
    add(one->n_prompt_tokens, request.was_started ? request.n_prompt_tokens : 0);
    add(one->n_cached_tokens, request.n_cached_tokens);
  }
  switch (request.outcome) {
    case Outcome::kCancelled: return add(n_cancelled);
    case Outcome::kFailed: return add(n_failed);
    case Outcome::kStopped: add(n_stopped_); break;
    case Outcome::kLength: add(n_length_); break;
  }
  add(n_finished);
  if (request.prepare_us) prepare_us_.record(*request.prepare_us);
  queue_us_.record(request.queue_us);
  prefill_us_.record(request.prefill_us);
  decode_us_.record(request.decode_us);
  inference_us_.record(request.prefill_us + request.decode_us);
  request_us_.record(request.whole_us);
  prompt_tokens_.record(request.n_prompt_tokens);
  generated_tokens_.record(request.n_generated_tokens);
}

ServingSnapshot ServingCounters::snapshot() const {
  ServingSnapshot snapshot;
  snapshot.n_running = read(n_running);
  snapshot.n_waiting = read(n_waiting);
  snapshot.n_cells = read(n_cells);
  snapshot.n_free_cells = read(n_free_cells);
  snapshot.n_idle_cells = read(n_idle_cells);
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
  snapshot.n_failed_steps = read(n_failed_steps);
  snapshot.n_stopped = read(n_stopped_);
  snapshot.n_length = read(n_length_);
  snapshot.step_time_us = step_time_us_.snapshot();
  snapshot.n_steps = snapshot.step_time_us.n_values();
  snapshot.step_tokens = step_tokens_.snapshot();
  snapshot.first_token_us = first_token_us_.snapshot();
  snapshot.inter_token_us = inter_token_us_.snapshot();
  snapshot.prepare_us = prepare_us_.snapshot();
  snapshot.queue_us = queue_us_.snapshot();
  snapshot.prefill_us = prefill_us_.snapshot();
  snapshot.decode_us = decode_us_.snapshot();
  snapshot.inference_us = inference_us_.snapshot();
  snapshot.request_us = request_us_.snapshot();
  snapshot.prompt_tokens = prompt_tokens_.snapshot();
  snapshot.generated_tokens = generated_tokens_.snapshot();
  return snapshot;
}

}  // namespace graft
