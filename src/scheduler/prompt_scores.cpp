#include "scheduler/prompt_scores.h"

#include <cstddef>
#include <string>
#include <utility>

#include "base/check.h"

namespace graft {

PromptScores::PromptScores(std::span<const TokenId> prompt, std::int32_t n_top,
                           const Vocabulary& vocabulary)
    : prompt_(prompt),
      n_top_(n_top),
      vocabulary_(vocabulary),
      decoder_(StreamDecoder::create({}).value()) {
  append(prompt_.front(), {});
}

Result<RowScore> PromptScores::score(std::int32_t row, std::span<const float> logits,
                                     SampleScratch& scratch) const {
  const TokenId next = prompt_[static_cast<std::size_t>(row) + 1];
  RowScore score;
  GRAFT_ASSIGN_OR_RETURN(score.of_next, score_token(logits, next, n_top_, scratch.buffers()));
  score.rank = rank_of(logits, next);
  return score;
}

void PromptScores::add(const RowScore& score) {
  GRAFT_CHECK(n_known_ < n_rows());
  append(prompt_[static_cast<std::size_t>(++n_known_)], score);
}

PromptScored PromptScores::take() { return std::exchange(news_, {}); }

TokenLogprob PromptScores::named(TokenId token, float logprob) const {
  return {token, std::string(vocabulary_.piece(token)), logprob};
}

void PromptScores::append(TokenId token, const RowScore& score) {
  PromptToken told;
  told.token = named(token, score.of_next.logprob);
  told.rank = score.rank;
  // The token that begins every text is none of it.
  const bool begins = score.rank == 0 && token == vocabulary_.bos();
  told.text = begins ? "" : decoder_.push(vocabulary_.piece(token));
  for (const RankedToken& other : score.of_next.top) {
    told.top_logprobs.push_back(named(other.token, other.logprob));
  }
  news_.tokens.push_back(std::move(told));
}

}  // namespace graft
