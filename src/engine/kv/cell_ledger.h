// CellLedger: our own account of libllama's unified KV memory, which offers no query of its own.
// A sequence holds one cell per position, 0 .. length - 1 without gaps; cells may be shared by
// sequences (after copy) and are free again when the last holder lets go. Cells here are numbers of
// the account, not libllama's slots: only counts must agree, because a slot may lie anywhere.
//
// Models with sliding windows keep two memories of the same size (swa_full); libllama may reuse
// masked cells of the second, so the account is exact for the first and an upper bound for both.
//
// Sequences below n_live compute; those above only hold cells of the prefix cache. A cell that no
// live sequence holds is *idle*: it is free as soon as its holders let go.
//
// Belongs to the engine thread. Invariants (check_invariants): the holders of a cell are the
// sequences that list it; a cell is free if and only if nobody holds it; the counts of live holders
// and of idle cells are those of the lists.
#pragma once

#include <cstdint>
#include <vector>

namespace graft {

class CellLedger {
 public:
  // Requires: n_live <= n_sequences.
  CellLedger(std::int32_t n_cells, std::int32_t n_sequences, std::int32_t n_live);

  std::int32_t n_cells() const { return static_cast<std::int32_t>(n_holders_.size()); }
  std::int32_t n_free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t n_idle() const { return n_idle_; }
  std::int32_t n_sequences() const { return static_cast<std::int32_t>(sequences_.size()); }
  std::int32_t length(std::int32_t sequence) const;

  // Adds `n_tokens` positions at the end. Requires: n_tokens <= n_free().
  void extend(std::int32_t sequence, std::int32_t n_tokens);
  // Keeps the first `n_tokens` positions. Requires: n_tokens <= length(sequence).
  void truncate(std::int32_t sequence, std::int32_t n_tokens);
  // `to` shares the first `n_tokens` positions of `from`. Requires: length(to) == 0.
  void copy(std::int32_t from, std::int32_t to, std::int32_t n_tokens) {
    share(from, to, 0, n_tokens);
  }
  // `to` shares the positions [begin, end) of `from`. Requires: length(to) == begin.
  void share(std::int32_t from, std::int32_t to, std::int32_t begin, std::int32_t end);
  void clear();

  // How many of the positions [begin, end) have at least `n_live` live holders.
  std::int32_t n_held_live(std::int32_t sequence, std::int32_t begin, std::int32_t end,
                           std::int32_t n_live = 1) const;
  // Cells that would be idle or free if this live sequence let go.
  std::int32_t n_own(std::int32_t sequence) const {
    return length(sequence) - n_held_live(sequence, 0, length(sequence), 2);
  }

  void check_invariants() const;

 private:
  void hold(std::int32_t sequence, std::int32_t cell);
  void let_go(std::int32_t sequence, std::int32_t cell);
  bool is_live(std::int32_t sequence) const { return sequence < n_live_; }

  std::int32_t n_live_;
  std::int32_t n_idle_ = 0;
  std::vector<std::vector<std::int32_t>> sequences_;  // [sequence][position] = cell
  std::vector<std::int32_t> n_holders_;               // [cell]
  std::vector<std::int32_t> n_live_holders_;          // [cell]
  std::vector<std::int32_t> free_;                    // cells without holder
};

}  // namespace graft
