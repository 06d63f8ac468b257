#include "engine/sampling/token_score.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/logit_kernels.h"

namespace graft {

Result<TokenScore> score_token(std::span<const float> logits, TokenId token, std::int32_t n_top,
                               CandidateScratch& scratch) {
  GRAFT_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits.size());
  std::optional<LogitRow> row = LogitRow::open(logits, scratch);
  if (!row) {
    return internal_error("the model's output is not finite");
  }
  const double log_sum = row->log_sum_exp();
  // A suppressed model output of -inf has no JSON form; this is as good as never.
  const auto logprob = [&](float logit) {
    return static_cast<float>(std::max(static_cast<double>(logit) - log_sum, -9999.0));
  };
  TokenScore score{.logprob = logprob(logits[static_cast<std::size_t>(token)])};
  if (n_top > 0) {
    row->select_top(static_cast<std::size_t>(n_top));
    for (const llama_token_data& candidate : scratch.candidates) {
      score.top.push_back({candidate.id, logprob(candidate.logit)});
    }
  }
  return score;
}

std::int32_t rank_of(std::span<const float> logits, TokenId token) {
  const float own = logits[static_cast<std::size_t>(token)];
  return static_cast<std::int32_t>(count_above(logits, own)) + 1;
}

}  // namespace graft
