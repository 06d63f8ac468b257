#include "engine/kv/sequence_ids.h"

#include "base/check.h"

namespace graft {

SequenceIds::SequenceIds(std::int32_t capacity, std::int32_t first)
    : first_(first), used_(static_cast<std::size_t>(capacity), false), n_free_(capacity) {}

std::optional<std::int32_t> SequenceIds::acquire() {
  for (std::size_t id = 0; id < used_.size(); ++id) {
    if (used_[id]) continue;
    used_[id] = true;
    --n_free_;
    return first_ + static_cast<std::int32_t>(id);
  }
  return std::nullopt;
}

void SequenceIds::release(std::int32_t id) {
  GRAFT_CHECK(contains(id) && in_use(id));
  used_[static_cast<std::size_t>(id - first_)] = false;
  ++n_free_;
}

}  // namespace graft
