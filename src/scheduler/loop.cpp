#include "scheduler/loop.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "scheduler/isolate.h"

namespace graft {

namespace {

using Clock = LiveRequest::Clock;

constexpr std::int64_t kStepsBetweenReleases = 16;

Error shutting_down() { return {ErrorCode::kUnavailable, "the server is shutting down", {}}; }

// What could never be admitted is refused at once.
Status check_group(std::span<const std::unique_ptr<LiveRequest>> group, std::int32_t n_cells,
                   std::int32_t max_sequences) {
  if (group.empty()) return internal_error("a group has no choices");
  const auto n_choices = static_cast<std::int32_t>(group.size());
  const LiveRequest& first = *group.front();
  for (const auto& choice : group) {
    if (!std::ranges::equal(choice->tokens(), first.tokens()) ||
        choice->attachment_key() != first.attachment_key()) {
      return internal_error("the choices of a group have different prompts");
    }
  }
  if (n_choices > max_sequences || first.n_tokens() + n_choices - 1 > n_cells) {
    return invalid_argument(std::to_string(n_choices) +
                                " choices do not fit: the server computes " +
                                std::to_string(max_sequences) + " sequences with " +
                                std::to_string(n_cells) + " tokens at once",
                            "n");
  }
  return {};
}

// Rows by kind: Pace learns from the difference.
struct RowCounts {
  std::int32_t n_decode = 0;
  std::int32_t n_prefill = 0;
};

RowCounts count_rows(std::span<const PlannedChunk> chunks,
                     std::span<const std::unique_ptr<LiveRequest>> running) {
  RowCounts counts;
  for (const PlannedChunk& chunk : chunks) {
    const bool decodes = running[static_cast<std::size_t>(chunk.request)]->n_pending() == 1;
    (decodes ? counts.n_decode : counts.n_prefill) += chunk.n_tokens;
  }
  return counts;
}

}  // namespace

Loop::Loop(Engine& engine, const LoopOptions& options)
    : options_(options),
      // Room for every waiting request, a cancellation of each request, and more of both in one
      // step; a cancellation that finds no room is repeated by the sink's refusal.
      inbox_(2 * static_cast<std::size_t>(options.max_waiting + engine.max_sequences()) + 64),
      engine_(engine),
      grafter_(engine.grafter()),
      vocabulary_(engine.model().vocabulary()),
      max_sequence_tokens_(engine.max_sequence_tokens()),
      n_state_values_(engine.n_state_values()),
      n_cells_(engine.cells().n_cells()),
      max_sequences_(engine.max_sequences()),
      computed_by_(engine.model().base().digest + ' ' + engine.execution_name()),
      may_cache_generated_(engine.is_batch_invariant()),
      max_trial_rows_(std::min(engine.max_rows(), engine.max_sequence_tokens() - 2)),
      pace_(options.max_gap_factor),
      prefix_cache_(engine, options.prefix_cache),
      known_adapters_(
          [&engine](const ResidentAdapter* adapter) { engine.grafter().forget(adapter); }),
      scratch_(static_cast<std::size_t>(engine.n_threads())),
      thread_([this] { run(); }) {}

Loop::~Loop() { stop(std::chrono::milliseconds(0)); }

Status Loop::submit(Submission submission) {
  std::vector<Submission> alone;
  alone.push_back(std::move(submission));
  return submit_group(std::move(alone));
}

Status Loop::submit_group(std::vector<Submission> choices) {
  const auto n_choices = static_cast<std::int64_t>(choices.size());
  const bool is_trial = n_choices == 1 && choices.front().is_trial;
  const Status status = enqueue(std::move(choices));
  if (is_trial) return status;
  ServingCounters::add(status ? counters_.n_submitted : counters_.n_rejected, n_choices);
  return status;
}

Result<std::unique_ptr<LiveRequest>> Loop::prepare(Submission submission) const {
  GRAFT_ASSIGN_OR_RETURN(
      auto request, LiveRequest::create(std::move(submission), vocabulary_, max_sequence_tokens_));
  if (request->use_of(request->n_tokens() - 1).state && n_state_values_ == 0) {
    return not_supported("this model cannot make embeddings");
  }
  for (const Attachment& attachment : request->attachments().attachments) {
    GRAFT_RETURN_IF_ERROR(grafter_.check_attachable(*attachment.module->resident));
  }
  request->set_prefix_key(make_prefix_key(request->tenant(), request->cache_rules().salt,
                                          computed_by_, request->attachments()));
  return request;
}

Status Loop::enqueue(std::vector<Submission> choices) {
  if (draining_) return shutting_down();
  Requests group;
  for (Submission& choice : choices) {
    GRAFT_ASSIGN_OR_RETURN(auto request, prepare(std::move(choice)));
    request->count_for(series_of(request->attachments()));
    group.push_back(std::move(request));
  }
  GRAFT_RETURN_IF_ERROR(check_group(group, n_cells_, max_sequences_));
  if (group.front()->is_trial()) return inbox_.push(std::move(group));
  const auto n_choices = static_cast<std::int32_t>(group.size());
  if (n_waiting_.fetch_add(n_choices) + n_choices > options_.max_waiting) {
    n_waiting_ -= n_choices;
    return Error{ErrorCode::kResourceExhausted,
                 "the queue is full (" + std::to_string(options_.max_waiting) + " requests)",
                 {}};
  }
  Status pushed = inbox_.push(std::move(group));
  if (!pushed) n_waiting_ -= n_choices;
  return pushed;
}

std::vector<ModuleSeries*> Loop::series_of(const AttachmentSet& attachments) {
  std::vector<ModuleSeries*> series;
  for (const Attachment& attachment : attachments.attachments) {
    ModuleSeries* one = &counters_.modules().series_of(attachment.module->name);
    // Modules without a series of their own share one.
    if (std::find(series.begin(), series.end(), one) == series.end()) series.push_back(one);
  }
  if (series.empty()) series.push_back(&counters_.modules().series_of(ModuleTable::kBaseName));
  return series;
}

void Loop::cancel(RequestId id) {
  if (!inbox_.push(CancelMessage{id})) log_debug("a cancellation found the inbox full or closed");
}

void Loop::stop(std::chrono::milliseconds grace) {
  if (!thread_.joinable()) return;
  draining_ = true;
  deadline_ = (Clock::now() + grace).time_since_epoch().count();
  stopping_ = true;
  // If the inbox is full, the engine thread is awake and sees the flag.
  if (!inbox_.push(WakeMessage{})) log_debug("stopping with a full inbox");
  thread_.join();
}

bool Loop::is_past_deadline() const {
  return stopping_ && Clock::now().time_since_epoch().count() >= deadline_;
}

void Loop::run() {
  engine_thread_.assert_here();
  Error reason = shutting_down();
  try {
    serve();
  } catch (const std::exception& error) {
    log_error(std::string("the engine thread failed: ") + error.what());
    reason = {ErrorCode::kInternal, "the engine failed", {}};
    ServingCounters::set(counters_.n_steps_failed_in_a_row, 1 << 20);
  }
  draining_ = true;
  inbox_.close();
  receive();  // what was submitted meanwhile
  fail_everything(reason);
  prefix_cache_.clear();
}

void Loop::serve() {
  update_gauges();
  while (!is_past_deadline()) {
    if (running_.empty() && waiting_.empty()) {
      if (stopping_ && inbox_.size() == 0) return;
      if (!prefix_cache_.has_work()) {
        if (auto message = inbox_.pop()) take(std::move(*message));
      }
    }
    step();
  }
}

void Loop::receive() {
  for (Message& message : inbox_.drain()) take(std::move(message));
}

void Loop::take(Message message) {
  if (auto* group = std::get_if<Requests>(&message)) {
    queue(std::move(*group));
  } else if (const auto* cancelled = std::get_if<CancelMessage>(&message)) {
    cancel_now(cancelled->id);
  }
}

// Choices that report on their prompt's rows must each compute them.
void Loop::queue(Requests group) {
  const LiveRequest& first = *group.front();
  if (first.is_trial()) {
    waiting_.push_front({std::move(group), {}});
    return;
  }
  const bool shares = first.can_reuse_prefix() && first.decides_at(first.n_tokens() - 1);
  if (shares || group.size() == 1) {
    waiting_.push_back({std::move(group), {}});
    return;
  }
  for (auto& choice : group) {
    waiting_.emplace_back();
    waiting_.back().choices.push_back(std::move(choice));
  }
}

void Loop::cancel_now(RequestId id) {
  const auto has_id = [&](const auto& request) { return request->id() == id; };
  auto found = std::find_if(running_.begin(), running_.end(), has_id);
  if (found != running_.end()) {
    if (!(*found)->is_over()) (*found)->finish(FinishReason::kCancelled);
    return;
  }
  for (auto group = waiting_.begin(); group != waiting_.end(); ++group) {
    const auto queued = std::find_if(group->choices.begin(), group->choices.end(), has_id);
    if (queued == group->choices.end()) continue;
    (*queued)->finish(FinishReason::kCancelled);
    (*queued)->publish();
    count_outcome(**queued);
    group->choices.erase(queued);
    if (group->choices.empty()) waiting_.erase(group);
    return;
  }
}

// One step. Nothing of it is visible outside before publish().
void Loop::step() {
  const Clock::time_point begin = Clock::now();
  receive();
  publish();  // cancellations free their cells before the plan is made
  const SchedulePlan plan = this->plan();
  reserve(plan);
  const RowCounts rows = count_rows(plan.chunks, running_);
  const bool succeeded = plan.chunks.empty() || compute(plan.chunks);
  publish();
  prefix_cache_.save();
  update_gauges();
  if (plan.chunks.empty()) return;

  const auto time = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  counters_.record_step({time.count(), rows.n_decode + rows.n_prefill});
  if (!succeeded) return;
  const double ms = static_cast<double>(time.count()) / 1000;
  if (rows.n_decode == 0) prefix_cache_.note_prefill(rows.n_prefill, ms);
  pace_.record(rows.n_decode, rows.n_prefill, ms);
}

bool Loop::compute(std::span<const PlannedChunk> chunks) {
  std::string reason;
  const auto run = [&](std::span<const PlannedChunk> some) {
    engine_thread_.assert_here();
    const StepPlan& plan = builder_.build(some, running_);
    StepOutcome outcome = engine_.step(plan);
    reason = std::move(outcome.message);
    if (outcome.kind != StepOutcome::kDone) return false;
    ServingCounters::set(counters_.n_steps_failed_in_a_row, 0);
    commit(some);
    return true;
  };
  const auto give_up = [&](const PlannedChunk& chunk) {
    engine_thread_.assert_here();
    log_warning("a request's computation failed: " + reason);
    ServingCounters::add(counters_.n_steps_failed_in_a_row);
    running_[static_cast<std::size_t>(chunk.request)]->fail(
        {ErrorCode::kInternal, "the computation failed: " + reason, {}});
  };
  const bool succeeded = run_isolated(chunks, run, give_up);
  if (!succeeded) ServingCounters::add(counters_.n_failed_steps);
  return succeeded;
}

void Loop::commit(std::span<const PlannedChunk> chunks) {
  std::vector<Output> outputs;
  std::int32_t row = 0;
  for (const PlannedChunk& chunk : chunks) {
    LiveRequest& request = *running_[static_cast<std::size_t>(chunk.request)];
    read_rows(chunk, row, outputs);
    row += chunk.n_tokens;
    const bool was_decode = request.n_pending() == 1;
    if (!was_decode) ServingCounters::add(counters_.n_prompt_tokens, chunk.n_tokens);
    request.advance(chunk.n_tokens);
    if (request.n_pending() > 0) continue;
    if (request.n_generated() == 0) share_prompt(request, outputs);
    if (request.n_generated() == 0 || !was_decode) cache_cells(request);
  }
  sample(outputs);
  for (const Output& output : outputs) {
    if (output.score) {
      output.request->add_score(*output.score);
    } else {
      output.request->commit_choice();
      count_token(*output.request);
    }
  }
  for (const PlannedChunk& chunk : chunks) {
    running_[static_cast<std::size_t>(chunk.request)]->finish_prompt();
  }
}

void Loop::read_rows(const PlannedChunk& chunk, std::int32_t row, std::vector<Output>& outputs) {
  LiveRequest& request = *running_[static_cast<std::size_t>(chunk.request)];
  for (std::int32_t i = 0; i < chunk.n_tokens; ++i) {
    const std::int32_t position = request.n_cached() + i;
    const RowUse use = request.use_of(position);
    if (use.logits) outputs.push_back({&request, position, engine_.logits(row + i)});
    if (use.state) request.add_state(engine_.state(row + i));
  }
}

// Rows are independent, so the compute pool shares them out. One row is not worth waking it.
void Loop::sample(std::span<Output> outputs) {
  std::atomic<std::size_t> next{0};
  auto* scratch = &scratch_;
  const auto work = [&next, scratch, outputs](int ith, int /*nth*/) {
    SampleScratch& own = (*scratch)[static_cast<std::size_t>(ith)];
    for (std::size_t i = next++; i < outputs.size(); i = next++) {
      Output& output = outputs[i];
      if (output.request->decides_at(output.position)) {
        output.request->choose(output.logits, own);
      } else {
        output.score = output.request->score(output.position, output.logits, own);
      }
    }
  };
  if (outputs.size() == 1) return work(0, 1);
  if (!outputs.empty()) engine_.run_parallel(work);
}

// Sends every request's events and lets go of the requests that are over.
void Loop::publish() {
  for (const auto& request : running_) request->publish();
  for (const auto& request : running_) {
    if (!request->is_over()) continue;
    release(*request);
    count_outcome(*request);
  }
  const auto n_over =
      std::erase_if(running_, [](const auto& request) { return request->is_over(); });
  // Now and then also between ends: a module may be unloaded while long streams go on without it.
  if (n_over > 0 || n_steps_ % kStepsBetweenReleases == 0) {
    known_adapters_.release_unused();
    prefix_cache_.drop_unloaded();
  }
  // The thread may now sleep for long; unloaded modules must not wait for it to wake.
  if (running_.empty()) known_adapters_.release_all();
}

void Loop::count_token(const LiveRequest& request) {
  if (const auto token = request.last_token()) counters_.record_token(*token, request.series());
}

void Loop::count_outcome(const LiveRequest& request) {
  if (request.is_trial()) return;
  if (!request.was_started()) --n_waiting_;
  counters_.record_end(request.record(), request.series());
}

void Loop::update_gauges() {
  ServingCounters::set(counters_.n_running, static_cast<std::int64_t>(running_.size()));
  ServingCounters::set(counters_.n_waiting, n_waiting_choices());
  ServingCounters::set(counters_.n_cells, engine_.cells().n_cells());
  ServingCounters::set(counters_.n_free_cells, engine_.cells().n_free());
  ServingCounters::set(counters_.n_idle_cells, engine_.cells().n_idle());
  const PrefixCacheStats prefix = prefix_cache_.stats();
  ServingCounters::set(counters_.n_prefix_hot_cells, prefix.n_hot_cells);
  ServingCounters::set(counters_.n_prefix_hot_bytes, prefix.n_hot_bytes);
  ServingCounters::set(counters_.n_prefix_warm_bytes, prefix.n_warm_bytes);
  ServingCounters::set(counters_.n_prefix_hot_hits, prefix.n_hot_hits);
  ServingCounters::set(counters_.n_prefix_warm_hits, prefix.n_warm_hits);
  ServingCounters::set(counters_.n_prefix_misses, prefix.n_misses);
  ServingCounters::set(counters_.n_prefix_hot_evictions, prefix.n_hot_evictions);
  ServingCounters::set(counters_.n_prefix_warm_evictions, prefix.n_warm_evictions);
  ServingCounters::set(counters_.n_prefix_hit_tokens, prefix.n_hit_tokens);
}

void Loop::fail_everything(const Error& error) {
  for (const auto& request : running_) {
    if (!request->is_over()) request->fail(error);
  }
  publish();
  for (const WaitingGroup& group : waiting_) {
    for (const auto& request : group.choices) {
      request->fail(error);
      request->publish();
      count_outcome(*request);
    }
  }
  waiting_.clear();
  update_gauges();
}

}  // namespace graft
