// ServingRig: a model, an engine and a loop, driven as the API drives them, with sinks that collect
// what comes back. For tests that compare answers bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "scheduler/loop.h"

namespace graft {

// All that a request got. Log-probabilities are kept as bits: equal answers are equal in every bit.
struct Answer {
  enum class End { kNone, kStop, kLength, kCancelled, kFailed };
  End end = End::kNone;
  Error error;
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<std::uint32_t> logprob_bits;
  std::vector<PromptToken> prompt;         // scored
  std::vector<std::uint32_t> prompt_bits;  // of its log-probabilities, ranks, alternatives
  std::vector<std::uint32_t> embedding_bits;
  std::int32_t n_prompt_tokens = 0;
  std::int32_t n_generated_tokens = 0;
  std::int32_t n_preemptions = 0;
  std::int32_t n_cached_tokens = 0;

  bool same_as(const Answer& other) const {
    return end == other.end && text == other.text && tokens == other.tokens &&
           logprob_bits == other.logprob_bits && prompt_bits == other.prompt_bits &&
           embedding_bits == other.embedding_bits;
  }
};

// Collects events; on_event (on the engine thread) may refuse to get more.
class CollectingSink final : public EventSink {
 public:
  using OnEvent = std::function<bool(const Event&)>;
  explicit CollectingSink(OnEvent on_event = {}) : on_event_(std::move(on_event)) {}

  bool publish(Event event) override;
  // Waits for the last event; fails the test after five minutes.
  Answer wait();

 private:
  void add(const Event& event) GRAFT_REQUIRES(mutex_);

  OnEvent on_event_;
  Mutex mutex_;
  ConditionVariable ended_;
  Answer answer_ GRAFT_GUARDED_BY(mutex_);
  bool has_ended_ GRAFT_GUARDED_BY(mutex_) = false;
};

struct RigOptions {
  EngineOptions engine = {};
  LoopOptions loop = {};
};

class ServingRig {
 public:
  // Fails the test (and aborts it) when something cannot be made.
  ServingRig(Model& model, const RigOptions& options);

  Answer ask(GenerationRequest request, AttachmentSet attachments = {});
  // When the loop refuses, the sink gets Failed with the reason.
  std::shared_ptr<CollectingSink> submit(GenerationRequest request, AttachmentSet attachments,
                                         CollectingSink::OnEvent on_event = {},
                                         std::shared_ptr<const Constraint> constraint = nullptr);

  // The choices of one prompt, which is computed once.
  std::vector<std::shared_ptr<CollectingSink>> submit_group(
      const std::vector<GenerationRequest>& choices, const AttachmentSet& attachments);

  Engine& engine() { return *engine_; }
  Loop& loop() { return *loop_; }
  // Ends the loop, so that the engine may be looked at.
  void stop() { loop_->stop(std::chrono::milliseconds(0)); }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Loop> loop_;
};

std::unique_ptr<Model> load_model(const std::string& path);

}  // namespace graft
