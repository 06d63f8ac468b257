// SequenceIds: which of a range of libllama's sequence numbers are in use. Live sequences need
// numbers below the context's n_seq_max; the numbers above, up to 255, can hold cells of cached
// prefixes but never be decoded. The lowest free one is given out, so that runs are repeatable.
//
// Belongs to the engine thread. Invariant: n_free() plus the numbers given out is the capacity.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace graft {

class SequenceIds {
 public:
  explicit SequenceIds(std::int32_t capacity, std::int32_t first = 0);

  // The lowest free number, or nothing when all are taken.
  std::optional<std::int32_t> acquire();
  // Requires: `id` was acquired and not yet released.
  void release(std::int32_t id);

  std::int32_t n_free() const { return n_free_; }
  std::int32_t capacity() const { return static_cast<std::int32_t>(used_.size()); }
  bool contains(std::int32_t id) const { return id >= first_ && id - first_ < capacity(); }
  // Requires: contains(id).
  bool in_use(std::int32_t id) const { return used_[static_cast<std::size_t>(id - first_)]; }

 private:
  std::int32_t first_;
  std::vector<bool> used_;
  std::int32_t n_free_ = 0;
};

}  // namespace graft
