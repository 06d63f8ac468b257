// PenaltyWindow: repetition, frequency and presence penalties over the last n tokens of a sequence.
// The same rule as llama.cpp's penalties sampler, but it visits the tokens of the window instead of
// looking up every token of the vocabulary. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>

#include "core/request.h"

namespace graft {

class PenaltyWindow {
 public:
  // Requires: valid penalties (Sampler::create checks them).
  explicit PenaltyWindow(const SamplingParams& params);

  // False if no logit can change, now or later.
  bool is_active() const { return n_tokens_ > 0; }

  // Requires: token in the vocabulary.
  void accept(TokenId token);
  void apply(std::span<float> logits) const;

 private:
  std::size_t n_tokens_ = 0;
  float repetition_;
  float frequency_;
  float presence_;
  std::deque<TokenId> window_;                        // oldest first, at most n_tokens_
  std::unordered_map<TokenId, std::int32_t> counts_;  // of the tokens in window_
};

}  // namespace graft
