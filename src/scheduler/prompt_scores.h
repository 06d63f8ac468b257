// PromptScores: the log-probabilities of one prompt's tokens, gathered from the rows that predict
// them: row i tells of token i + 1. Each row is needed once, whatever the chunks and however often
// the request is preempted; its logits are dropped as soon as it is scored.
//
// Belongs to the engine thread; score() alone may run on threads of the compute pool, for several
// rows at once. Borrows the prompt and the vocabulary.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "core/event.h"
#include "engine/sampling/sampler.h"
#include "text/stream_decoder.h"
#include "text/vocabulary.h"

namespace graft {

struct RowScore {
  TokenScore of_next;  // the prompt's next token
  std::int32_t rank = 0;
};

class PromptScores {
 public:
  // Requires: a prompt of at least one token, ids in the vocabulary; n_top from 0 to 20.
  PromptScores(std::span<const TokenId> prompt, std::int32_t n_top, const Vocabulary& vocabulary);

  // The rows from n_known() to n_rows() - 1 are still wanted.
  std::int32_t n_known() const { return n_known_; }
  std::int32_t n_rows() const { return static_cast<std::int32_t>(prompt_.size()) - 1; }

  // Requires: 0 <= row < n_rows().
  Result<RowScore> score(std::int32_t row, std::span<const float> logits,
                         SampleScratch& scratch) const;
  // Of the row n_known().
  void add(const RowScore& score);

  bool has_news() const { return !news_.tokens.empty(); }
  // The tokens that were scored since; the first time, the prompt's first one too.
  PromptScored take();

 private:
  TokenLogprob named(TokenId token, float logprob) const;
  void append(TokenId token, const RowScore& score);

  std::span<const TokenId> prompt_;
  std::int32_t n_top_;
  const Vocabulary& vocabulary_;
  StreamDecoder decoder_;
  std::int32_t n_known_ = 0;
  PromptScored news_;
};

}  // namespace graft
