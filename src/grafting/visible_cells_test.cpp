#include "grafting/visible_cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace graft {
namespace {

constexpr std::uint16_t kHidden = 0xFC00;  // -inf as F16
constexpr std::uint16_t kMinusOne = 0xBC00;

using Cells = std::vector<std::int32_t>;

// A cache as libllama keeps it, and the mask that libllama would make for some rows.
class Memory {
 public:
  explicit Memory(std::int32_t n_cells) : cells_(static_cast<std::size_t>(n_cells)) {
    table_.resize(n_cells);
  }

  void put(std::int32_t cell, std::int32_t position, std::vector<int> sequences = {0}) {
    cells_[static_cast<std::size_t>(cell)] = {position, std::move(sequences)};
    table_.set(cell, position);
  }
  void forget_position(std::int32_t cell) { table_.set(cell, PositionTable::kUnknown); }
  // A row whose own key lies in `cell`.
  void add_row(std::int32_t cell, int sequence = 0) { rows_.push_back({cell, sequence}); }
  void set_window(std::int32_t n) { window_ = n; }

  bool sees(std::size_t row, std::int32_t cell) const {
    const Cell& at = cells_[static_cast<std::size_t>(cell)];
    const std::int32_t own = cells_[static_cast<std::size_t>(rows_[row].cell)].position;
    return std::count(at.sequences.begin(), at.sequences.end(), rows_[row].sequence) > 0 &&
           at.position <= own && (window_ == 0 || own - at.position < window_);
  }
  std::int32_t position(std::int32_t cell) const {
    return cells_[static_cast<std::size_t>(cell)].position;
  }
  std::size_t n_rows() const { return rows_.size(); }

  // Visible cells of a row in order of position, found the slow way.
  Cells expected(std::size_t row) const {
    Cells seen;
    for (std::int32_t c = 0; c < n_cells(); ++c) {
      if (sees(row, c)) seen.push_back(c);
    }
    std::sort(seen.begin(), seen.end(),
              [this](std::int32_t a, std::int32_t b) { return position(a) < position(b); });
    return seen;
  }

  // Rows first .. end - 1 as one batch. The mask's rows lie further apart than their length, and
  // what lies between them looks like visible cells.
  void build(VisibleCells& visible, std::size_t first, std::size_t end) {
    const auto n_kv = static_cast<std::size_t>(n_cells());
    const std::size_t stride = n_kv + 7;
    mask_.assign(stride * (end - first), 0);
    std::vector<std::int64_t> row_cells;
    for (std::size_t row = first; row < end; ++row) {
      row_cells.push_back(rows_[row].cell);
      for (std::int32_t c = 0; c < n_cells(); ++c) {
        mask_[(row - first) * stride + static_cast<std::size_t>(c)] =
            sees(row, c) ? values_at(row, c) : kHidden;
      }
    }
    visible.build({mask_.data(), n_cells(), stride, static_cast<std::int32_t>(end - first)},
                  row_cells, table_);
  }
  void build(VisibleCells& visible) { build(visible, 0, rows_.size()); }
  void set_alibi() { alibi_ = true; }

 private:
  struct Cell {
    std::int32_t position = 0;
    std::vector<int> sequences;
  };
  struct Row {
    std::int32_t cell = 0;
    int sequence = 0;
  };

  std::int32_t n_cells() const { return static_cast<std::int32_t>(cells_.size()); }
  std::uint16_t values_at(std::size_t row, std::int32_t cell) const {
    return alibi_ && cell != rows_[row].cell ? kMinusOne : 0;
  }

  std::vector<Cell> cells_;
  std::vector<Row> rows_;
  std::vector<std::uint16_t> mask_;
  PositionTable table_;
  std::int32_t window_ = 0;
  bool alibi_ = false;
};

const RowGroup& group_of(const VisibleCells& visible, std::size_t row) {
  const auto r = static_cast<std::int32_t>(row);
  for (const RowGroup& group : visible.groups()) {
    if (r >= group.first_row && r < group.first_row + group.n_rows) return group;
  }
  throw std::runtime_error("row " + std::to_string(row) + " has no group");
}

Cells seen(const VisibleCells& visible, std::size_t row) {
  const RowGroup& group = group_of(visible, row);
  const RowRun& run = visible.runs()[row];
  Cells cells;
  for (std::int32_t p = run.begin; p < run.end; ++p) {
    cells.push_back(
        visible.cells()[static_cast<std::size_t>(group.list_begin + p - group.first_position)]);
  }
  return cells;
}

// Groups cover the rows in order, and every run lies inside its group's list.
void check_invariants(const VisibleCells& visible, std::size_t n_rows) {
  std::int32_t next = 0;
  for (const RowGroup& group : visible.groups()) {
    EXPECT_EQ(group.first_row, next);
    EXPECT_GT(group.n_rows, 0);
    next += group.n_rows;
    EXPECT_GE(group.list_begin, 0);
    EXPECT_LE(group.list_begin + group.end_position - group.first_position,
              static_cast<std::int32_t>(visible.cells().size()));
    for (std::int32_t r = group.first_row; r < next; ++r) {
      const RowRun& run = visible.runs()[static_cast<std::size_t>(r)];
      EXPECT_LE(run.begin, run.end);
      if (run.begin == run.end) continue;
      EXPECT_GE(run.begin, group.first_position);
      EXPECT_LE(run.end, group.end_position);
    }
  }
  EXPECT_EQ(static_cast<std::size_t>(next), n_rows);
  EXPECT_EQ(visible.runs().size(), n_rows);
}

// Every row sees exactly its cells in order of position, and its run is numbered by position.
void check_rows(Memory& memory, const VisibleCells& visible) {
  check_invariants(visible, memory.n_rows());
  for (std::size_t row = 0; row < memory.n_rows(); ++row) {
    const Cells expected = memory.expected(row);
    EXPECT_EQ(seen(visible, row), expected) << "row " << row;
    if (expected.empty()) continue;
    EXPECT_EQ(visible.runs()[row].begin, memory.position(expected.front())) << "row " << row;
    EXPECT_EQ(visible.runs()[row].end, memory.position(expected.back()) + 1) << "row " << row;
  }
}

TEST(VisibleCells, FragmentedCellsComeInOrderOfPosition) {
  Memory memory(200);
  // Sequence 0 got cells that others had freed; sequence 1 lies between them.
  const Cells own = {150, 3, 99, 4, 64, 63, 0, 199, 128};
  for (std::size_t i = 0; i < own.size(); ++i) memory.put(own[i], static_cast<std::int32_t>(i));
  const Cells other = {1, 2, 65, 100, 151};
  for (std::size_t i = 0; i < other.size(); ++i) {
    memory.put(other[i], static_cast<std::int32_t>(i), {1});
  }
  for (std::size_t i = 5; i < own.size(); ++i) memory.add_row(own[i]);
  memory.add_row(other.back(), 1);
  VisibleCells visible;
  memory.build(visible);
  check_rows(memory, visible);
  ASSERT_EQ(visible.groups().size(), 2U);  // one list for all rows of a sequence
  EXPECT_EQ(visible.groups()[0].n_rows, 4);
  EXPECT_EQ(visible.groups()[1].n_rows, 1);
  EXPECT_EQ(seen(visible, 3), own);
  EXPECT_EQ(visible.cells().size(), own.size() + other.size());
}

TEST(VisibleCells, CellsThatWrapAroundTheEndOfTheMemory) {
  Memory memory(100);
  for (std::int32_t p = 0; p < 40; ++p) memory.put((80 + p) % 100, p);
  for (std::int32_t p = 15; p < 40; ++p) memory.add_row((80 + p) % 100);
  VisibleCells visible;
  memory.build(visible);
  check_rows(memory, visible);
  ASSERT_EQ(visible.groups().size(), 1U);
  EXPECT_EQ(seen(visible, 24).front(), 80);
  EXPECT_EQ(seen(visible, 24).back(), 19);
}

TEST(VisibleCells, ASharedPrefixIsSeenByBothSequencesAndTheirTailsByOne) {
  Memory memory(128);
  for (std::int32_t p = 0; p < 20; ++p) memory.put(3 * p, p, {0, 1});
  for (std::int32_t p = 20; p < 24; ++p) memory.put(70 + 2 * p, p, {0});
  for (std::int32_t p = 20; p < 23; ++p) memory.put(71 + 2 * p, p, {1});
  for (std::int32_t p = 20; p < 24; ++p) memory.add_row(70 + 2 * p, 0);
  for (std::int32_t p = 20; p < 23; ++p) memory.add_row(71 + 2 * p, 1);
  VisibleCells visible;
  memory.build(visible);
  check_rows(memory, visible);
  ASSERT_EQ(visible.groups().size(), 2U);
  const Cells a = seen(visible, 3);
  const Cells b = seen(visible, 6);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 20, b.begin()));
  EXPECT_EQ(a.size(), 24U);
  EXPECT_EQ(b.size(), 23U);
}

TEST(VisibleCells, WindowsSlideOverOneList) {
  Memory memory(150);
  memory.set_window(8);
  for (std::int32_t p = 0; p < 40; ++p) memory.put((p * 53) % 150, p);
  for (std::int32_t p = 20; p < 40; ++p) memory.add_row((p * 53) % 150);
  VisibleCells visible;
  memory.build(visible);
  check_rows(memory, visible);
  ASSERT_EQ(visible.groups().size(), 1U);
  EXPECT_EQ(visible.groups()[0].first_position, 13);
  EXPECT_EQ(visible.groups()[0].end_position, 40);
  EXPECT_EQ(visible.runs()[0].end - visible.runs()[0].begin, 8);
}

TEST(VisibleCells, ARowWithoutAnyVisibleCellIsEmptyAndDisturbsNobody) {
  Memory memory(90);
  for (std::int32_t p = 0; p < 5; ++p) memory.put(10 + p, p, {0});
  memory.put(30, 7, {});  // no sequence: nobody sees it, not even its row
  for (std::int32_t p = 0; p < 5; ++p) memory.put(40 + p, p, {1});
  memory.add_row(13, 0);
  memory.add_row(14, 0);
  memory.add_row(30, 9);
  memory.add_row(43, 1);
  memory.add_row(44, 1);
  VisibleCells visible;
  memory.build(visible);
  check_rows(memory, visible);
  EXPECT_TRUE(seen(visible, 2).empty());
  EXPECT_EQ(visible.groups().size(), 3U);
}

TEST(VisibleCells, AnEmptyRowInFrontOfItsSequenceLeavesTheOthersTheirCells) {
  VisibleCells visible;
  PositionTable table;
  table.resize(4);
  table.set(0, 0);
  table.set(1, 1);
  // The second row sees the first row's cell, so both look like one sequence.
  const std::vector<std::uint16_t> mask = {kHidden, kHidden, kHidden, kHidden,
                                           0,       0,       kHidden, kHidden};
  const std::vector<std::int64_t> row_cells = {0, 1};
  visible.build({mask.data(), 4, 4, 2}, row_cells, table);
  check_invariants(visible, 2);
  EXPECT_TRUE(seen(visible, 0).empty());
  EXPECT_EQ(seen(visible, 1), (Cells{0, 1}));
  EXPECT_EQ(visible.runs()[1].begin, 0);
  EXPECT_EQ(visible.runs()[1].end, 2);
}

// Positions with a gap cannot number a list; each row then counts its own cells from zero.
TEST(VisibleCells, GapsInPositionsGiveEachRowItsOwnNumbering) {
  Memory memory(100);
  const std::vector<std::int32_t> positions = {4, 5, 6, 9, 10, 20};
  for (std::size_t i = 0; i < positions.size(); ++i) {
    memory.put(static_cast<std::int32_t>(90 - 7 * i), positions[i]);
  }
  for (std::size_t i = 1; i < positions.size(); ++i) {
    memory.add_row(static_cast<std::int32_t>(90 - 7 * i));
  }
  VisibleCells visible;
  memory.build(visible);
  check_invariants(visible, 5);
  EXPECT_EQ(visible.groups().size(), 5U);
  for (std::size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(seen(visible, row), memory.expected(row)) << row;
    // Rows before the gap have positions that are consecutive, and keep them.
    EXPECT_EQ(visible.runs()[row].begin, row < 2 ? 4 : 0) << row;
    EXPECT_EQ(visible.runs()[row].end - visible.runs()[row].begin,
              static_cast<std::int32_t>(row) + 2);
  }
}

TEST(VisibleCells, UnknownPositionsAreNumberedFromZeroInMemoryOrder) {
  Memory memory(80);
  for (std::int32_t p = 0; p < 6; ++p) memory.put(70 - p, 3 + p);
  for (std::int32_t p = 0; p < 6; ++p) memory.forget_position(70 - p);
  memory.add_row(66);
  memory.add_row(65);
  VisibleCells visible;
  memory.build(visible);
  check_invariants(visible, 2);
  EXPECT_EQ(seen(visible, 0), (Cells{66, 67, 68, 69, 70}));
  EXPECT_EQ(seen(visible, 1), (Cells{65, 66, 67, 68, 69, 70}));
  EXPECT_EQ(visible.runs()[0].begin, 0);
  EXPECT_EQ(visible.runs()[1].begin, 0);
}

TEST(VisibleCells, OneUnknownPositionDoesNotHideACell) {
  Memory memory(80);
  for (std::int32_t p = 0; p < 6; ++p) memory.put(20 + p, p);
  memory.forget_position(23);
  memory.add_row(25);
  VisibleCells visible;
  memory.build(visible);
  check_invariants(visible, 1);
  Cells cells = seen(visible, 0);
  EXPECT_EQ(visible.runs()[0].begin, 0);
  std::sort(cells.begin(), cells.end());
  EXPECT_EQ(cells, (Cells{20, 21, 22, 23, 24, 25}));
}

TEST(VisibleCells, TwoCellsOfOnePositionAreBothSeen) {
  Memory memory(70);
  memory.put(5, 0);
  memory.put(6, 1);
  memory.put(66, 1);
  memory.put(7, 2);
  memory.add_row(7);
  VisibleCells visible;
  memory.build(visible);
  check_invariants(visible, 1);
  EXPECT_EQ(seen(visible, 0), (Cells{5, 6, 66, 7}));
}

// Random memories, windows and batches: a batch of many rows, the same rows one by one, and the
// slow way agree on cells and on their numbering.
TEST(VisibleCells, GroupsAndSinglesGiveTheSameRuns) {
  std::mt19937 random(7);
  const auto pick = [&random](int below) {
    return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(below));
  };
  VisibleCells batch;  // reused, as from step to step
  VisibleCells single;
  for (int trial = 0; trial < 60; ++trial) {
    const std::int32_t n_cells = 65 + pick(200);
    Memory memory(n_cells);
    memory.set_window(trial % 3 == 0 ? 2 + pick(12) : 0);
    Cells free(static_cast<std::size_t>(n_cells));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    for (int sequence = 0; sequence < 4; ++sequence) {
      const std::int32_t length = 1 + pick(15);
      const std::int32_t start = trial % 2 == 0 ? 0 : pick(600);
      const std::int32_t n_rows = 1 + pick(length);
      for (std::int32_t i = 0; i < length; ++i) {
        memory.put(free.back(), start + i, {sequence});
        if (i >= length - n_rows) memory.add_row(free.back(), sequence);
        free.pop_back();
      }
    }
    memory.build(batch);
    check_rows(memory, batch);
    EXPECT_EQ(batch.groups().size(), 4U);
    for (std::size_t row = 0; row < memory.n_rows(); ++row) {
      memory.build(single, row, row + 1);
      EXPECT_EQ(seen(single, 0), seen(batch, row));
      EXPECT_EQ(single.runs()[0].begin, batch.runs()[row].begin);
      EXPECT_EQ(single.runs()[0].end, batch.runs()[row].end);
    }
    if (HasFailure()) FAIL() << "trial " << trial;
  }
}

TEST(VisibleCells, BiasIsFoundInGroupsAndSinglesAndForgottenAgain) {
  VisibleCells visible;
  for (const int n_rows : {1, 3}) {
    Memory memory(100);
    for (std::int32_t p = 0; p < 10; ++p) memory.put(p * 9, p);
    for (int i = 0; i < n_rows; ++i) memory.add_row((7 + i) * 9);
    memory.build(visible);
    EXPECT_FALSE(visible.has_bias()) << n_rows;
    memory.set_alibi();
    memory.build(visible);
    EXPECT_TRUE(visible.has_bias()) << n_rows;
    check_rows(memory, visible);
  }
  Memory plain(100);
  plain.put(50, 0);
  plain.add_row(50);
  plain.build(visible);
  EXPECT_FALSE(visible.has_bias());
}

TEST(VisibleCells, NegativeZeroIsNoBias) {
  VisibleCells visible;
  PositionTable table;
  table.resize(2);
  table.set(0, 0);
  const std::vector<std::uint16_t> mask = {0x8000, kHidden};
  const std::vector<std::int64_t> row_cells = {0};
  visible.build({mask.data(), 2, 2, 1}, row_cells, table);
  EXPECT_FALSE(visible.has_bias());
  EXPECT_EQ(seen(visible, 0), Cells{0});
}

// A row's own cell comes from the graph; one outside the mask must not be looked up in it.
TEST(VisibleCells, CellsOutsideOfTheMaskEndAGroup) {
  VisibleCells visible;
  PositionTable table;
  table.resize(3);
  for (int i = 0; i < 3; ++i) table.set(i, i);
  const std::vector<std::uint16_t> mask = {0, 0, kHidden, 0, 0, 0};
  for (const std::int64_t outside : {std::int64_t{3}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    const std::vector<std::int64_t> row_cells = {outside, 2};
    visible.build({mask.data(), 3, 3, 2}, row_cells, table);
    EXPECT_EQ(visible.groups().size(), 2U) << outside;
    EXPECT_EQ(seen(visible, 0), (Cells{0, 1}));
    EXPECT_EQ(seen(visible, 1), (Cells{0, 1, 2}));
  }
}

TEST(PositionTable, GrowsKeepsAndIgnoresWhatIsOutside) {
  PositionTable table;
  EXPECT_EQ(table.at(0), PositionTable::kUnknown);
  table.resize(4);
  table.set(3, 17);
  table.set(4, 1);
  table.set(-1, 1);
  EXPECT_EQ(table.at(3), 17);
  EXPECT_EQ(table.at(2), PositionTable::kUnknown);
  table.resize(8);
  EXPECT_EQ(table.at(3), 17);
  EXPECT_EQ(table.at(4), PositionTable::kUnknown);
  EXPECT_EQ(table.at(-1), PositionTable::kUnknown);
  table.resize(2);  // never shrinks: cells stay where they are
  EXPECT_EQ(table.at(3), 17);
}

}  // namespace
}  // namespace graft
