#include "scheduler/prompt_embedding.h"

#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace graft {

void PromptEmbedding::add(std::span<const float> state) {
  GRAFT_CHECK(n_known_ < n_rows_);
  if (n_added_ == 0) sum_.assign(state.size(), 0.0);
  GRAFT_CHECK(sum_.size() == state.size());
  for (std::size_t i = 0; i < state.size(); ++i) sum_[i] += static_cast<double>(state[i]);
  ++n_added_;
  ++n_known_;
}

// The length of the mean does not matter, so the sum is as good.
Result<std::vector<float>> PromptEmbedding::take() const {
  GRAFT_CHECK(n_known_ == n_rows_ && n_added_ > 0);
  double square = 0;
  for (const double value : sum_) square += value * value;
  if (!std::isfinite(square)) return internal_error("the model's output is not finite");
  const double length = square > 0 ? std::sqrt(square) : 1;
  std::vector<float> values;
  values.reserve(sum_.size());
  for (const double value : sum_) values.push_back(static_cast<float>(value / length));
  return values;
}

}  // namespace graft
