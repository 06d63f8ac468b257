// What one row of logits says of one token: its log-probability in the raw distribution (before
// temperature, bias and penalties), its rank, and the likeliest tokens beside it. The same sums for
// generated tokens and for those of a prompt, so both get the same bits.
//
// Pure functions over the caller's scratch; any thread, each with a scratch of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/request.h"

namespace graft {

struct CandidateScratch;

struct RankedToken {
  TokenId token = 0;
  float logprob = 0.0F;  // natural log
};

struct TokenScore {
  float logprob = 0.0F;
  std::vector<RankedToken> top = {};  // the n_top likeliest, descending
};

// Fails (kInternal) if the row is not one of finite logits. Requires: token inside the row,
// n_top >= 0.
Result<TokenScore> score_token(std::span<const float> logits, TokenId token, std::int32_t n_top,
                               CandidateScratch& scratch);

// 1 + how many tokens are likelier. Requires: token inside the row.
std::int32_t rank_of(std::span<const float> logits, TokenId token);

}  // namespace graft
