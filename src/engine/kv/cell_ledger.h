// CellLedger: our own account of libllama's unified KV memory, which offers no query of its own.
// A sequence holds one cell per position, 0 .. length - 1 without gaps; cells may be shared by
// sequences (after copy) and are free again when the last holder lets go. Cells here are numbers of
// the account, not libllama's slots: only counts must agree, because a slot may lie anywhere.
//
// Models with sliding windows keep two memories of the same size (swa_full); libllama may reuse
// masked cells of the second, so the account is exact for the first and an upper bound for both.
//
// Belongs to the engine thread. Invariants (check_invariants): the holders of a cell are the
// sequences that list it; a cell is free if and only if nobody holds it.
#pragma once

#include <cstdint>
#include <vector>

namespace graft {

class CellLedger {
 public:
  CellLedger(std::int32_t n_cells, std::int32_t n_sequences);

  std::int32_t n_cells() const { return static_cast<std::int32_t>(n_holders_.size()); }
  std::int32_t n_free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t n_sequences() const { return static_cast<std::int32_t>(sequences_.size()); }
  std::int32_t length(std::int32_t sequence) const;

  // Adds `n_tokens` positions at the end. Requires: n_tokens <= n_free().
  void extend(std::int32_t sequence, std::int32_t n_tokens);
  // Keeps the first `n_tokens` positions. Requires: n_tokens <= length(sequence).
  void truncate(std::int32_t sequence, std::int32_t n_tokens);
  // `to` shares the first `n_tokens` positions of `from`. Requires: length(to) == 0.
  void copy(std::int32_t from, std::int32_t to, std::int32_t n_tokens);
  void clear();

  void check_invariants() const;

 private:
  std::vector<std::vector<std::int32_t>> sequences_;  // [sequence][position] = cell
  std::vector<std::int32_t> n_holders_;               // [cell]
  std::vector<std::int32_t> free_;                    // cells without holder
};

}  // namespace graft
