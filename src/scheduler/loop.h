// Loop: the engine thread. It takes submitted requests, and step by step plans, computes, samples,
// commits and publishes, until it is told to stop. Implements GenerationService.
//
// Threads: the public functions may be called by any thread; all private state belongs to the
// engine thread, which the loop owns. Messages come in through a bounded queue, events leave
// through each request's sink, numbers through counters(). Borrows the engine: nobody else may use
// it while the loop lives.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/queue.h"
#include "engine/engine.h"
#include "engine/prefix_cache.h"
#include "metrics/serving_counters.h"
#include "scheduler/generation_service.h"
#include "scheduler/known_adapters.h"
#include "scheduler/live_request.h"
#include "scheduler/pace.h"
#include "scheduler/policy.h"
#include "scheduler/step_builder.h"

namespace graft {

struct LoopOptions {
  std::int32_t max_waiting = 1024;  // requests that are not yet admitted
  double max_gap_factor = 1.6;      // see Pace; gaps vary, and the longest shall be twice the quiet
  // Fixed share instead of Pace's; for tests and measurements.
  std::optional<std::int32_t> n_prefill_beside_decode = {};
  std::int32_t n_headroom_cells = 32;  // see PolicyLimits
  std::int32_t max_rows = 0;           // of a step; 0 = what the engine takes
  PrefixCacheOptions prefix_cache = {};
};

class Loop final : public GenerationService {
 public:
  // Starts the engine thread. Requires: options within the engine's limits.
  Loop(Engine& engine, const LoopOptions& options);
  // Stops at once.
  ~Loop() override;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Status submit(Submission submission) override;
  Status submit_group(std::vector<Submission> choices) override;
  void cancel(RequestId id) override;
  bool healthy() const override { return counters_.snapshot().healthy; }

  // From now on nothing is accepted; what was accepted goes on.
  void drain() { draining_ = true; }
  // Drains for at most `grace`, fails what is left with kUnavailable, and ends the engine thread.
  // Requires: not called from the engine thread. Later calls do nothing.
  void stop(std::chrono::milliseconds grace);

  ServingSnapshot counters() const override { return counters_.snapshot(); }
  const ServingCounters& metrics() const { return counters_; }
  // Prompt of a trial at most: one step, and room for two tokens of answer.
  std::int32_t max_trial_rows() const { return max_trial_rows_; }

 private:
  using Requests = std::vector<std::unique_ptr<LiveRequest>>;
  struct CancelMessage {
    RequestId id = 0;
  };
  struct WakeMessage {};
  // Choices that are admitted together; most have one. `match` is of the last plan.
  struct WaitingGroup {
    Requests choices;
    PrefixMatch match;
  };
  using Message = std::variant<Requests, CancelMessage, WakeMessage>;
  // A row with logits: it decides its request's next token, or scores one of the prompt.
  struct Output {
    LiveRequest* request = nullptr;
    std::int32_t position = 0;
    std::span<const float> logits;
    std::optional<Result<RowScore>> score = {};
  };

  Status enqueue(std::vector<Submission> choices);
  Result<std::unique_ptr<LiveRequest>> prepare(Submission submission) const;
  std::vector<ModuleSeries*> series_of(const AttachmentSet& attachments);

  void run();
  void serve() GRAFT_REQUIRES(engine_thread_);
  void receive() GRAFT_REQUIRES(engine_thread_);
  void take(Message message) GRAFT_REQUIRES(engine_thread_);
  void queue(Requests group) GRAFT_REQUIRES(engine_thread_);
  void cancel_now(RequestId id) GRAFT_REQUIRES(engine_thread_);

  void step() GRAFT_REQUIRES(engine_thread_);
  SchedulePlan plan() GRAFT_REQUIRES(engine_thread_);
  void reserve(const SchedulePlan& plan) GRAFT_REQUIRES(engine_thread_);
  std::int64_t n_waiting_choices() const GRAFT_REQUIRES(engine_thread_);
  std::vector<RunningView> view_running(StreamCounts& counts) GRAFT_REQUIRES(engine_thread_);
  std::vector<WaitingView> view_waiting(StreamCounts& counts) GRAFT_REQUIRES(engine_thread_);
  void preempt_youngest() GRAFT_REQUIRES(engine_thread_);
  void admit(WaitingGroup group) GRAFT_REQUIRES(engine_thread_);
  void restore_cells(std::int32_t n_reserved) GRAFT_REQUIRES(engine_thread_);
  bool is_blocked(const LiveRequest& request) const GRAFT_REQUIRES(engine_thread_);
  // What the request has computed becomes findable for others.
  void cache_cells(const LiveRequest& request) GRAFT_REQUIRES(engine_thread_);
  // Gives the cells of a leader's prompt to those who wait for them.
  void share_prompt(const LiveRequest& leader, std::vector<Output>& outputs)
      GRAFT_REQUIRES(engine_thread_);
  void replace_leader(const LiveRequest& leader) GRAFT_REQUIRES(engine_thread_);
  void release(const LiveRequest& request) GRAFT_REQUIRES(engine_thread_);
  // Whoever cannot be computed fails alone. False if someone did.
  bool compute(std::span<const PlannedChunk> chunks) GRAFT_REQUIRES(engine_thread_);
  // The outputs of a chunk, whose rows begin at `row` of the step; takes its tapped states.
  void read_rows(const PlannedChunk& chunk, std::int32_t row, std::vector<Output>& outputs)
      GRAFT_REQUIRES(engine_thread_);
  void sample(std::span<Output> outputs) GRAFT_REQUIRES(engine_thread_);
  void commit(std::span<const PlannedChunk> chunks) GRAFT_REQUIRES(engine_thread_);
  void publish() GRAFT_REQUIRES(engine_thread_);

  void count_token(const LiveRequest& request) GRAFT_REQUIRES(engine_thread_);
  void count_outcome(const LiveRequest& request) GRAFT_REQUIRES(engine_thread_);
  void update_gauges() GRAFT_REQUIRES(engine_thread_);
  void fail_everything(const Error& error) GRAFT_REQUIRES(engine_thread_);
  bool is_past_deadline() const;

  const LoopOptions options_;
  ServingCounters counters_;
  Queue<Message> inbox_;
  std::atomic<std::int32_t> n_waiting_{0};  // submitted and never started
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<LiveRequest::Clock::duration::rep> deadline_{0};  // since the clock's epoch

  ThreadRole engine_thread_;
  Engine& engine_ GRAFT_GUARDED_BY(engine_thread_);
  const Grafter& grafter_;  // for its immutable site table
  const Vocabulary& vocabulary_;
  const std::int32_t max_sequence_tokens_;
  const std::int64_t n_state_values_;  // 0 = the model cannot make embeddings
  const std::int32_t n_cells_;
  const std::int32_t max_sequences_;
  const std::string computed_by_;   // see make_prefix_key
  const bool may_cache_generated_;  // decoding gives the bits of prefilling
  const std::int32_t max_trial_rows_;
  Requests running_ GRAFT_GUARDED_BY(engine_thread_);  // oldest first
  std::deque<WaitingGroup> waiting_ GRAFT_GUARDED_BY(engine_thread_);
  Pace pace_ GRAFT_GUARDED_BY(engine_thread_);
  PrefixCache prefix_cache_ GRAFT_GUARDED_BY(engine_thread_);
  StepBuilder builder_ GRAFT_GUARDED_BY(engine_thread_);
  KnownAdapters known_adapters_ GRAFT_GUARDED_BY(engine_thread_);
  std::vector<SampleScratch> scratch_ GRAFT_GUARDED_BY(engine_thread_);  // one per pool thread
  std::int64_t n_steps_ GRAFT_GUARDED_BY(engine_thread_) = 0;

  std::jthread thread_;  // last: it uses everything above
};

}  // namespace graft
