// VisibleCells: for one attention mask of one step, which cells each row sees, in order of
// position.
//
// The mask is the truth for which cells; PositionTable is the truth for their order (design 2b):
// memory order would break batch invariance once freed cells are reused. Rows of one sequence share
// one list of cells; each row sees a contiguous run of it. A row whose cells do not form a run of
// consecutive positions gets a list of its own, numbered from zero.
//
// One instance per mask, reused from step to step so that nothing is allocated in steady state.
// Used by the engine thread before a step; read by the pool's threads during it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace graft {

// Position of every cell of one cache, learnt from each graph's own inputs; those of restored cells
// are supplied by who restored them. Cells that were never written have no position.
class PositionTable {
 public:
  static constexpr std::int32_t kUnknown = -1;

  void resize(std::int64_t n_cells) {
    if (static_cast<std::size_t>(n_cells) > positions_.size()) {
      positions_.resize(static_cast<std::size_t>(n_cells), kUnknown);
    }
  }
  // Cells outside the table are ignored: such a graph does not run on the cache anyway.
  void set(std::int64_t cell, std::int32_t position) {
    if (cell >= 0 && static_cast<std::size_t>(cell) < positions_.size()) {
      positions_[static_cast<std::size_t>(cell)] = position;
    }
  }
  std::int32_t at(std::int64_t cell) const {
    return static_cast<std::size_t>(cell) < positions_.size()
               ? positions_[static_cast<std::size_t>(cell)]
               : kUnknown;
  }

 private:
  std::vector<std::int32_t> positions_;
};

// Consecutive rows of the batch that share a list of cells.
struct RowGroup {
  std::int32_t first_row = 0;
  std::int32_t n_rows = 0;
  std::int32_t list_begin = 0;      // into VisibleCells::cells()
  std::int32_t first_position = 0;  // of the list's first cell
  std::int32_t end_position = 0;
};

struct RowRun {
  std::int32_t begin = 0;  // positions the row sees: [begin, end)
  std::int32_t end = 0;
};

// A mask as llama.cpp fills it: F16 [n_kv, n_rows], -inf hides a cell.
struct MaskRows {
  const std::uint16_t* data = nullptr;
  std::int64_t n_kv = 0;
  std::size_t row_stride = 0;  // values from row to row
  std::int32_t n_rows = 0;

  const std::uint16_t* row(std::int32_t r) const {
    return data + static_cast<std::size_t>(r) * row_stride;
  }
};

class VisibleCells {
 public:
  // `row_cells[r]` is the cell that row r's own key goes to.
  void build(const MaskRows& mask, std::span<const std::int64_t> row_cells,
             const PositionTable& table);

  // Appends the cells that one row of a mask shows, in memory order. True when one has a bias.
  static bool collect(const std::uint16_t* row, std::int64_t n_kv,
                      std::vector<std::int32_t>& cells);

  std::span<const RowGroup> groups() const { return groups_; }
  std::span<const RowRun> runs() const { return runs_; }
  std::span<const std::int32_t> cells() const { return cells_; }
  // Some visible cell has a mask value other than zero (ALiBi): its value must be added.
  bool has_bias() const { return has_bias_; }

 private:
  void extract(const std::uint16_t* row, std::int64_t n_kv);
  std::int32_t group_end(const MaskRows& mask, std::span<const std::int64_t> row_cells,
                         std::int32_t first) const;
  void add_group(const MaskRows& mask, std::int32_t first, std::int32_t end,
                 const PositionTable& table);
  void add_single(const MaskRows& mask, std::int32_t row, const PositionTable& table);
  bool sort_by_position(std::size_t begin, const PositionTable& table);
  bool find_runs(const MaskRows& mask, const RowGroup& group, std::int32_t end);

  std::vector<std::int32_t> cells_;
  std::vector<RowGroup> groups_;
  std::vector<RowRun> runs_;
  std::vector<std::uint16_t> merged_;  // union of a group's masks
  bool has_bias_ = false;
};

}  // namespace graft
