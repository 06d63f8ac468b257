#include "grafting/state_tap.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace graft {

bool StateTap::select(const StepPlan& plan) {
  const bool was_active = is_active();
  taken_.clear();
  std::int32_t n_outputs = 0;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    if (plan.rows[i].is_tapped) taken_.push_back({i, n_outputs});
    n_outputs += plan.rows[i].is_output ? 1 : 0;
  }
  states_.resize(taken_.size() * n_values_);
  return is_active() != was_active;
}

ggml_tensor* StateTap::op_for(const FinalState& from, ggml_context* arena) {
  from_ = from;
  n_values_ = static_cast<std::size_t>(from.node->ne[0]);
  states_.resize(taken_.size() * n_values_);
  ggml_tensor* op = ggml_custom_inplace(arena, from.node, nullptr, 0, run, GGML_N_TASKS_MAX, this);
  op->flags |= from.node->flags & GGML_TENSOR_FLAG_COMPUTE;
  return op;
}

void StateTap::run(ggml_tensor* /*target*/, int ith, int nth, void* data) {
  auto* tap = static_cast<StateTap*>(data);
  const ggml_tensor* node = tap->from_.node;
  for (std::size_t i = static_cast<std::size_t>(ith); i < tap->taken_.size();
       i += static_cast<std::size_t>(nth)) {
    const TakenRow& taken = tap->taken_[i];
    const std::size_t row = tap->from_.rows == RowSpace::kOutputs
                                ? static_cast<std::size_t>(taken.n_outputs)
                                : taken.row;
    std::memcpy(tap->states_.data() + i * tap->n_values_,
                static_cast<const char*>(node->data) + row * node->nb[1],
                tap->n_values_ * sizeof(float));
  }
}

std::span<const float> StateTap::state(std::size_t row) const {
  const auto found = std::lower_bound(
      taken_.begin(), taken_.end(), row,
      [](const TakenRow& taken, std::size_t wanted) { return taken.row < wanted; });
  GRAFT_CHECK(found != taken_.end() && found->row == row);
  const auto at = static_cast<std::size_t>(found - taken_.begin());
  return std::span<const float>(states_).subspan(at * n_values_, n_values_);
}

}  // namespace graft
