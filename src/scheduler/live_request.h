// LiveRequest: one request from submission to its last event: its tokens, how many of them are in
// the KV memory, its sampler, text decoder and place in a constraint, and the events that wait to
// be published. What it holds survives preemption, so a preempted request goes on as if nothing had
// happened.
//
// Created on the caller's thread, then owned by the engine thread; choose() and score() alone may
// run on threads of the compute pool. It holds the leases of its modules until it is destroyed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/event.h"
#include "engine/sampling/sampler.h"
#include "grafting/step_plan.h"
#include "metrics/module_presence.h"
#include "metrics/serving_counters.h"
#include "scheduler/generation_service.h"
#include "scheduler/policy.h"
#include "scheduler/prefix_key.h"
#include "scheduler/prompt_embedding.h"
#include "scheduler/prompt_scores.h"
#include "text/constraint.h"
#include "text/stream_decoder.h"
#include "text/trigger_finder.h"
#include "text/vocabulary.h"

namespace graft {

// What a step computes of a row beside its keys and values.
struct RowUse {
  bool logits = false;
  bool state = false;
};

class LiveRequest {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Outcome { kRunning, kFinished, kCancelled, kFailed };

  // Errors: kInvalidArgument naming what is wrong, for a prompt of `max_tokens` or more too.
  // `max_tokens` limits prompt and answer together. Borrows the vocabulary.
  static Result<std::unique_ptr<LiveRequest>> create(Submission submission,
                                                     const Vocabulary& vocabulary,
                                                     std::int32_t max_tokens);

  RequestId id() const { return submission_.request.id; }
  bool is_trial() const { return submission_.is_trial; }
  const AttachmentSet& attachments() const { return submission_.attachments; }
  // The attachments as a step plan has them. Two requests may share a set if and only if their
  // keys are equal: the same resident adapters, scales and start positions in the same order.
  const std::vector<PlannedAttachment>& attachment_set() const { return attachment_set_; }
  const std::string& attachment_key() const { return attachment_key_; }

  // Prompt and generated tokens; the first n_cached() are in the KV memory.
  std::span<const TokenId> tokens() const { return tokens_; }
  std::int32_t n_tokens() const { return static_cast<std::int32_t>(tokens_.size()); }
  std::int32_t n_cached() const { return n_cached_; }
  std::int32_t n_generated() const { return n_generated_; }
  std::int32_t n_pending() const { return n_tokens() - n_cached_; }
  std::int32_t sequence() const { return sequence_; }
  bool was_started() const { return was_started_; }

  RowUse use_of(std::int32_t position) const;
  // Of the pending tokens, those before the last one that use_of() is not nothing for.
  ReportedRows reported_rows() const;
  // Whether keys and values of its prompt may come from elsewhere: nothing is asked of their rows.
  bool can_reuse_prefix() const { return reported_rows().n == 0; }

  // What the prefix cache may know of it. Set before it runs.
  void set_prefix_key(PrefixKey key) { prefix_key_ = std::move(key); }
  const std::string& tenant() const { return submission_.tenant; }
  const PrefixCacheRules& cache_rules() const { return submission_.request.prefix_cache; }
  const std::vector<RoleRun>& roles() const { return prefix_key_.roles; }
  PrefixPath prefix_path(std::int32_t n_tokens) const;
  std::int32_t n_prompt() const {
    return static_cast<std::int32_t>(submission_.request.prompt.size());
  }

  // The request gets a sequence with `n_shared` of its tokens and runs; the first time, Started is
  // published. Of its prompt `n_found` are cached, those that are restored later included.
  void start(std::int32_t sequence, std::int32_t n_shared, std::int32_t n_found);
  // Its cells are gone; everything is pending again.
  void preempt();
  // `n_tokens` more are cached.
  void advance(std::int32_t n_tokens) { n_cached_ += n_tokens; }
  // Its cells could not be restored.
  void lose_cached() { n_cached_ = n_found_tokens_ = 0; }

  // A choice that waits for another one of its group, which computes the prompt of both; null when
  // it does not. The leader runs as long as anyone follows it.
  const LiveRequest* leader() const { return leader_; }
  void follow(const LiveRequest* leader) { leader_ = leader; }

  // From now on it counts as waiting or running there; what it did is recorded by the loop.
  void count_for(std::vector<ModuleSeries*> series) {
    presence_ = ModulePresence(std::move(series));
  }
  SeriesList series() const { return presence_.series(); }
  // The token that the last commit_choice() made, if it made one.
  std::optional<TokenRecord> last_token() const;
  // Requires: is_over().
  RequestRecord record() const;

  // Chooses the next token from the logits of the last one, without any visible effect.
  void choose(std::span<const float> logits, SampleScratch& scratch);
  // The chosen token joins the sequence, or ends it. Requires: choose() was called since.
  void commit_choice();

  // Whether the logits of this row decide the next token; else they score one of the prompt.
  bool decides_at(std::int32_t position) const;
  // Requires: use_of(position).logits, not decides_at(position).
  Result<RowScore> score(std::int32_t position, std::span<const float> logits,
                         SampleScratch& scratch) const;
  // What became known of a row of the prompt, in order of position. Requires: use_of() wanted it.
  void add_score(const Result<RowScore>& score);
  void add_state(std::span<const float> state);
  // After a step: a request that generates nothing ends with its prompt.
  void finish_prompt();

  void finish(FinishReason reason);
  void fail(Error error);
  // Sends the waiting events; a sink that wants no more cancels the request.
  void publish();

  Outcome outcome() const { return outcome_; }
  bool is_over() const { return outcome_ != Outcome::kRunning; }

 private:
  LiveRequest(Submission submission, const Vocabulary& vocabulary, std::int32_t max_tokens,
              StreamDecoder decoder);
  void plan_attachments();
  Status start_constraint();
  void look_for_trigger(std::string_view piece);
  void plan_report();
  Status check() const;
  Status check_report() const;
  bool generates() const { return submission_.request.stop.max_tokens != 0; }
  void report_scores();
  bool ends_generation(TokenId token) const;
  std::span<const TokenId> suppressed_tokens();
  void append_banned(std::vector<TokenId>& tokens) const;
  TokenOutput describe(const SampledToken& sampled) const;
  Timings timings() const;
  // From the end of the client's request to submission; nothing if no client sent it.
  std::optional<Clock::duration> prepare_time() const;

  Submission submission_;
  const Vocabulary& vocabulary_;
  std::int32_t max_tokens_;
  std::vector<PlannedAttachment> attachment_set_;
  std::string attachment_key_;
  PrefixKey prefix_key_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<ConstraintState> constraint_;  // null: any text
  std::optional<TriggerFinder> trigger_;         // where constraint_ starts
  StreamDecoder decoder_;
  std::optional<PromptScores> scores_;
  std::optional<PromptEmbedding> embedding_;
  std::vector<TokenId> ending_tokens_;  // of the model, then of the request
  std::vector<TokenId> suppressed_;     // scratch of suppressed_tokens()

  std::vector<TokenId> tokens_;
  std::int32_t n_cached_ = 0;
  std::int32_t n_generated_ = 0;
  std::int32_t n_preemptions_ = 0;
  std::int32_t n_found_tokens_ = 0;  // of the prompt, when it first ran
  std::int32_t sequence_ = -1;
  const LiveRequest* leader_ = nullptr;
  bool was_started_ = false;
  ModulePresence presence_;
  std::optional<Result<SampledToken>> choice_;
  std::vector<Event> events_;
  Outcome outcome_ = Outcome::kRunning;
  FinishReason finish_reason_ = FinishReason::kStop;
  bool made_token_ = false;  // by the last commit_choice()

  Clock::time_point submitted_at_;
  Clock::time_point started_at_;
  Clock::time_point first_token_at_;
  Clock::time_point last_token_at_;
  Clock::time_point token_before_at_;  // the one before that
};

}  // namespace graft
