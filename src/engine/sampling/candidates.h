// Candidates: the part of a vocabulary that a sampling rule leaves over, found without sorting the
// vocabulary. Selections are exact; equal logits rank by token id, lowest first.
//
// A LogitRow borrows one row of logits for the time of a call; CandidateScratch holds the buffers,
// one per worker thread, reused from token to token. Inside engine/ only (it shows llama.h).
#pragma once

#include <llama.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/request.h"
#include "text/token_mask.h"

namespace graft {

struct CandidateScratch {
  std::vector<float> adjusted;   // logits after bias and penalties
  std::vector<float> block_max;  // per kLogitBlock logits
  std::vector<float> block_sum;
  std::vector<float> weights;                // per logit
  std::vector<float> ordered;                // block_max, reordered by selection
  std::vector<llama_token_data> candidates;  // 12 bytes each; at most the vocabulary
  TokenMask allowed;                         // by a constraint
};

class LogitRow {
 public:
  // Nothing if the row cannot be sampled from: a NaN, a value of 1e30 or more, or nothing but -inf.
  // Requires: logits not empty; scratch and logits outlive this object.
  static std::optional<LogitRow> open(std::span<const float> logits, CandidateScratch& scratch);

  float max() const { return max_; }
  TokenId argmax() const;

  // Log of the sum of exp(logit), at temperature 1.
  double log_sum_exp() const;

  // The following fill scratch.candidates, and overwrite what it held.

  // The k largest in descending order; p is 0. Requires: k >= 1.
  void select_top(std::size_t k);

  // The smallest set of largest logits whose probability at this temperature reaches top_p, in no
  // particular (but reproducible) order, without those less likely than min_p times the first; p is
  // a weight in proportion to the probability. Requires: 0 < top_p <= 1, 0 <= min_p <= 1,
  // temperature > 0.
  void select_nucleus(float top_p, float min_p, float temperature);

  // One token of the whole vocabulary by its probability at this temperature; `uniform` in [0, 1)
  // is where in the cumulated probability. Requires: temperature > 0.
  TokenId draw(double uniform, float temperature) const;

 private:
  LogitRow(std::span<const float> logits, float max, CandidateScratch& scratch)
      : logits_(logits), max_(max), scratch_(&scratch) {}
  double total_weight(float temperature) const;
  void collect(float low, float high);
  float cut_at_weight(double target, float low, float& high, double& weight_above) const;

  std::span<const float> logits_;
  float max_;
  CandidateScratch* scratch_;
};

// One of the candidates by their weights p. Requires: not empty, one has a weight above 0.
TokenId draw_weighted(std::span<const llama_token_data> candidates, double uniform);

}  // namespace graft
