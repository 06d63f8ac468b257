#include "scheduler/step_builder.h"

#include <cstddef>
#include <utility>

namespace graft {

std::int32_t StepBuilder::set_of(const LiveRequest& request) {
  if (request.attachment_set().empty()) return -1;
  const auto n_sets = static_cast<std::int32_t>(plan_.sets.size());
  const auto [entry, is_new] = sets_.emplace(request.attachment_key(), n_sets);
  if (is_new) plan_.sets.push_back(request.attachment_set());
  return entry->second;
}

const StepPlan& StepBuilder::build(std::span<const PlannedChunk> chunks,
                                   std::span<const std::unique_ptr<LiveRequest>> running) {
  plan_.clear();
  sets_.clear();
  for (const PlannedChunk& chunk : chunks) {
    const LiveRequest& request = *running[static_cast<std::size_t>(chunk.request)];
    const std::int32_t set = set_of(request);
    const std::int32_t end = request.n_cached() + chunk.n_tokens;
    for (std::int32_t position = request.n_cached(); position < end; ++position) {
      const RowUse use = request.use_of(position);
      plan_.rows.push_back({.token = request.tokens()[static_cast<std::size_t>(position)],
                            .position = position,
                            .sequence = request.sequence(),
                            .is_output = use.logits || use.state,
                            .set = set,
                            .is_tapped = use.state});
    }
  }
  return plan_;
}

}  // namespace graft
