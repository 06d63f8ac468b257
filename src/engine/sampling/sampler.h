// Sampler: turns rows of logits into tokens for one generated sequence.
//
// Order of the rules: bias and penalties, suppressed tokens, temperature, top_k, top_p, min_p,
// draw. Under a constraint one token is drawn so and checked; only if it does not fit, all tokens
// that do not are suppressed too and it is drawn again. It owns all state that a sequence's choice
// depends on (random numbers, penalty window), so a request that is preempted keeps its Sampler and
// goes on as if nothing had happened. Used by one thread at a time; different samplers may run at
// once, each thread with a scratch of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/request.h"
#include "engine/sampling/penalty_window.h"
#include "engine/sampling/token_score.h"

struct llama_sampler;

namespace graft {

class ConstraintState;

inline constexpr std::int32_t kMaxPenaltyLastN = 1 << 17;
inline constexpr std::size_t kMaxLogitBias = 4096;

// Buffers for sampling: one per worker thread, for any sampler.
class SampleScratch {
 public:
  SampleScratch();
  ~SampleScratch();
  SampleScratch(SampleScratch&&) noexcept;
  SampleScratch& operator=(SampleScratch&&) noexcept;

  CandidateScratch& buffers() { return *buffers_; }

 private:
  std::unique_ptr<CandidateScratch> buffers_;
};

struct SampledToken {
  TokenId token = 0;
  // Both of the raw distribution: before temperature, bias and penalties; only if the request asked
  // for log-probabilities.
  float logprob = 0.0F;
  std::vector<RankedToken> top = {};  // descending
};

class Sampler {
 public:
  // Checks every parameter; the error names the field. Requires: n_vocab > 0.
  static Result<std::unique_ptr<Sampler>> create(const SamplingParams& params,
                                                 std::int32_t n_vocab);

  // Chooses a token; none of `suppressed` (ids outside the vocabulary are ignored): the caller
  // names end-of-generation tokens there until min_tokens is reached. Does not change the penalty
  // window; call accept() with the token that joins the sequence. Fails (kInternal) if the row is
  // not one of finite logits, or nothing is left to choose. With a constraint the token fits it:
  // where nothing but the end fits, `suppressed` does not keep the answer from ending. Errors of
  // the constraint are the request's fault (kInvalidArgument). The constraint is not moved on.
  Result<SampledToken> sample(std::span<const float> logits, std::span<const TokenId> suppressed,
                              SampleScratch& scratch, ConstraintState* constraint = nullptr);

  // Tells of a token of the sequence, in order: prompt tokens, if penalties should see them, and
  // each chosen token. Ids outside the vocabulary are ignored.
  void accept(TokenId token);

 private:
  struct SamplerFree {
    void operator()(llama_sampler* sampler) const;
  };

  Sampler(const SamplingParams& params, std::int32_t n_vocab);
  Status add_rules();
  bool add_rule(llama_sampler* rule);
  std::span<const float> adjust(std::span<const float> logits, std::span<const TokenId> suppressed,
                                CandidateScratch& scratch) const;
  Result<TokenId> choose(std::span<const float> logits, CandidateScratch& scratch);
  Result<TokenId> choose_allowed(std::span<const float> logits, std::span<const TokenId> suppressed,
                                 CandidateScratch& scratch, ConstraintState& constraint);
  Result<TokenId> draw_by_rules(CandidateScratch& scratch);
  Status add_logprobs(std::span<const float> logits, CandidateScratch& scratch,
                      SampledToken& sampled) const;
  bool is_greedy() const;

  SamplingParams params_;
  std::int32_t n_vocab_;
  PenaltyWindow penalties_;
  std::mt19937_64 random_;  // used without top_k
  // llama.cpp's temperature, top_p, min_p and draw, for the top_k candidates; null without top_k.
  std::unique_ptr<llama_sampler, SamplerFree> rules_;
};

}  // namespace graft
