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

Error shutting_down() { return {ErrorCode::kUnavailable, "the server is shutting down", {}}; }

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
      pace_(options.max_gap_factor),
      known_adapters_(
          [&engine](const ResidentAdapter* adapter) { engine.grafter().forget(adapter); }),
      scratch_(static_cast<std::size_t>(engine.n_threads())),
      thread_([this] { run(); }) {}

Loop::~Loop() { stop(std::chrono::milliseconds(0)); }

Status Loop::submit(Submission submission) {
  const Status status = enqueue(std::move(submission));
  ServingCounters::add(status ? counters_.n_submitted : counters_.n_rejected);
  return status;
}

Status Loop::enqueue(Submission submission) {
  if (draining_) return shutting_down();
  GRAFT_ASSIGN_OR_RETURN(
      auto request, LiveRequest::create(std::move(submission), vocabulary_, max_sequence_tokens_));
  if (request->use_of(request->n_tokens() - 1).state && n_state_values_ == 0) {
    return not_supported("this model cannot make embeddings");
  }
  for (const Attachment& attachment : request->attachments().attachments) {
    GRAFT_RETURN_IF_ERROR(grafter_.check_attachable(*attachment.module->resident));
  }
  if (n_waiting_.fetch_add(1) >= options_.max_waiting) {
    --n_waiting_;
    return Error{ErrorCode::kResourceExhausted,
                 "the queue is full (" + std::to_string(options_.max_waiting) + " requests)",
                 {}};
  }
  Status pushed = inbox_.push(std::move(request));
  if (!pushed) --n_waiting_;
  return pushed;
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
}

void Loop::serve() {
  while (!is_past_deadline()) {
    if (running_.empty() && waiting_.empty()) {
      if (stopping_ && inbox_.size() == 0) return;
      if (auto message = inbox_.pop()) take(std::move(*message));
    }
    step();
  }
}

void Loop::receive() {
  for (Message& message : inbox_.drain()) take(std::move(message));
}

void Loop::take(Message message) {
  if (auto* request = std::get_if<std::unique_ptr<LiveRequest>>(&message)) {
    waiting_.push_back(std::move(*request));
  } else if (const auto* cancelled = std::get_if<CancelMessage>(&message)) {
    cancel_now(cancelled->id);
  }
}

void Loop::cancel_now(RequestId id) {
  const auto has_id = [&](const auto& request) { return request->id() == id; };
  auto found = std::find_if(running_.begin(), running_.end(), has_id);
  if (found != running_.end()) {
    if (!(*found)->is_over()) (*found)->finish(FinishReason::kCancelled);
    return;
  }
  const auto queued = std::find_if(waiting_.begin(), waiting_.end(), has_id);
  if (queued == waiting_.end()) return;
  (*queued)->finish(FinishReason::kCancelled);
  (*queued)->publish();
  count_outcome(**queued);
  waiting_.erase(queued);
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
  update_gauges();
  if (plan.chunks.empty()) return;

  const auto time = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  counters_.record_step(time.count());
  if (!succeeded) return;
  pace_.record(rows.n_decode, rows.n_prefill, static_cast<double>(time.count()) / 1000);
}

SchedulePlan Loop::plan() {
  std::vector<RunningView> running;
  StreamCounts counts;
  for (const auto& request : running_) {
    running.push_back({.n_cached = request->n_cached(),
                       .n_pending = request->n_pending(),
                       .reported = request->reported_rows()});
    if (request->n_pending() != 1) continue;
    counts.n_decode += 1;
    counts.n_settled += request->n_generated() >= kSettledTokens ? 1 : 0;
  }
  std::vector<WaitingView> waiting;
  const auto n_free = static_cast<std::size_t>(engine_.n_free_sequences());
  for (std::size_t i = 0; i < std::min(n_free, waiting_.size()); ++i) {
    waiting.push_back({waiting_[i]->n_tokens(), waiting_[i]->reported_rows()});
  }
  counts.n_streams = static_cast<std::int32_t>(running_.size() + waiting.size());
  PolicyLimits limits;
  limits.n_rows = options_.max_rows > 0 ? options_.max_rows : engine_.max_rows();
  limits.n_prefill_beside_decode =
      options_.n_prefill_beside_decode.value_or(pace_.prefill_share(counts));
  limits.n_headroom_cells = options_.n_headroom_cells;
  limits.n_reported_rows = engine_.max_reported_rows();
  return make_plan({.running = running,
                    .waiting = waiting,
                    .n_free_cells = engine_.cells().n_free(),
                    .n_free_sequences = engine_.n_free_sequences(),
                    .step = n_steps_++},
                   limits);
}

// Gives the plan's requests their sequences and takes back those of preempted ones.
void Loop::reserve(const SchedulePlan& plan) {
  for (std::size_t i = 0; i < plan.preempted.size(); ++i) {
    std::unique_ptr<LiveRequest> youngest = std::move(running_.back());
    running_.pop_back();
    engine_.release_sequence(youngest->sequence());
    youngest->preempt();
    waiting_.push_front(std::move(youngest));
    ServingCounters::add(counters_.n_preemptions);
  }
  for (std::int32_t i = 0; i < plan.n_admitted; ++i) {
    std::unique_ptr<LiveRequest> request = std::move(waiting_.front());
    waiting_.pop_front();
    const std::optional<std::int32_t> sequence = engine_.acquire_sequence();
    GRAFT_CHECK(sequence.has_value());
    if (!request->was_started()) --n_waiting_;
    known_adapters_.add(request->attachments());
    request->start(*sequence);
    running_.push_back(std::move(request));
  }
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
  }
  sample(outputs);
  for (const Output& output : outputs) {
    if (output.score) {
      output.request->add_score(*output.score);
    } else {
      output.request->commit_choice();
      ServingCounters::add(counters_.n_generated_tokens);
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
    engine_.release_sequence(request->sequence());
    count_outcome(*request);
  }
  const auto n_over =
      std::erase_if(running_, [](const auto& request) { return request->is_over(); });
  if (n_over > 0) known_adapters_.release_unused();
  // The thread may now sleep for long; unloaded modules must not wait for it to wake.
  if (running_.empty()) known_adapters_.release_all();
}

void Loop::count_outcome(const LiveRequest& request) {
  if (!request.was_started()) --n_waiting_;
  switch (request.outcome()) {
    case LiveRequest::Outcome::kFinished: return ServingCounters::add(counters_.n_finished);
    case LiveRequest::Outcome::kCancelled: return ServingCounters::add(counters_.n_cancelled);
    case LiveRequest::Outcome::kFailed: return ServingCounters::add(counters_.n_failed);
    case LiveRequest::Outcome::kRunning: break;
  }
}

void Loop::update_gauges() {
  ServingCounters::set(counters_.n_running, static_cast<std::int64_t>(running_.size()));
  ServingCounters::set(counters_.n_waiting, static_cast<std::int64_t>(waiting_.size()));
  ServingCounters::set(counters_.n_cells, engine_.cells().n_cells());
  ServingCounters::set(counters_.n_free_cells, engine_.cells().n_free());
}

void Loop::fail_everything(const Error& error) {
  for (const auto& request : running_) {
    if (!request->is_over()) request->fail(error);
  }
  publish();
  for (const auto& request : waiting_) {
    request->fail(error);
    request->publish();
    count_outcome(*request);
  }
  waiting_.clear();
  update_gauges();
}

}  // namespace graft
