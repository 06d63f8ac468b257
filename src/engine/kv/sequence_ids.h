// SequenceIds: which of libllama's sequence numbers are in use. Live sequences need numbers below
// the context's n_seq_max; the lowest free one is given out, so that runs are repeatable.
//
// Belongs to the engine thread. Invariant: n_free() plus the numbers given out is the capacity.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace graft {

class SequenceIds {
 public:
  explicit SequenceIds(std::int32_t capacity);

  // The lowest free number, or nothing when all are taken.
  std::optional<std::int32_t> acquire();
  // Requires: `id` was acquired and not yet released.
  void release(std::int32_t id);

  std::int32_t n_free() const { return n_free_; }
  bool in_use(std::int32_t id) const { return used_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<bool> used_;
  std::int32_t n_free_ = 0;
};

}  // namespace graft
