#include "engine/sampling/penalty_window.h"

namespace graft {

PenaltyWindow::PenaltyWindow(const SamplingParams& params)
    : repetition_(params.repetition_penalty),
      frequency_(params.frequency_penalty),
      presence_(params.presence_penalty) {
  if (repetition_ != 1.0F || frequency_ != 0.0F || presence_ != 0.0F) {
    n_tokens_ = static_cast<std::size_t>(params.penalty_last_n);
  }
}

void PenaltyWindow::accept(TokenId token) {
  if (n_tokens_ == 0) {
    return;
  }
  if (window_.size() == n_tokens_) {
    const auto oldest = counts_.find(window_.front());
    if (--oldest->second == 0) {
      counts_.erase(oldest);
    }
    window_.pop_front();
  }
  window_.push_back(token);
  ++counts_[token];
}

void PenaltyWindow::apply(std::span<float> logits) const {
  for (const auto& [token, count] : counts_) {
    float& logit = logits[static_cast<std::size_t>(token)];
    // Dividing a negative logit would reward the repetition.
    logit = logit <= 0.0F ? logit * repetition_ : logit / repetition_;
    logit -= static_cast<float>(count) * frequency_ + presence_;
  }
}

}  // namespace graft
