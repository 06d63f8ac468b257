// Vectorised passes over one row of logits. Pure functions, any thread.
//
// Sums run in a fixed order that depends on n alone, never on the number of threads.
#pragma once

#include <cstddef>
#include <span>

#include "core/request.h"

namespace graft {

// Logits per block of the block-wise results below; the last block may be shorter.
inline constexpr std::size_t kLogitBlock = 64;

inline constexpr std::size_t n_logit_blocks(std::size_t n) {
  return (n + kLogitBlock - 1) / kLogitBlock;
}

struct LogitRange {
  float max = 0.0F;
  bool has_nan = false;
};

// Requires: logits not empty; block_max has n_logit_blocks() elements (values are unspecified when
// has_nan).
LogitRange block_maxima(std::span<const float> logits, std::span<float> block_max);

// The lowest index that holds the value `max`. Requires: it occurs.
TokenId first_index_of(std::span<const float> logits, float max);

// The sum of exp((logit - max) * inverse_temperature); -inf counts as 0. block_sum receives each
// block's part and `weights`, unless it is empty, each logit's. Requires: max is the largest logit
// and finite; block_sum has n_logit_blocks() elements, weights as many as logits or none.
double sum_exp(std::span<const float> logits, float max, float inverse_temperature,
               std::span<float> block_sum, std::span<float> weights = {});

struct Mass {
  double weight = 0.0;
  std::size_t n_tokens = 0;
};

// What the logits of at least `threshold` weigh together, and how many they are.
// Requires: weights as sum_exp() wrote them, threshold > -inf.
Mass mass_at_least(std::span<const float> logits, std::span<const float> weights, float threshold);

// How many logits are above `value`; NaN is not.
std::size_t count_above(std::span<const float> logits, float value);

}  // namespace graft
