#include "grafting/visible_cells.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace graft {
namespace {

constexpr std::uint16_t kHidden = 0xFC00;  // -inf as F16
constexpr std::int64_t kSkip = 64;         // cells looked at together

const std::array<std::uint16_t, kSkip> kAllHidden = [] {
  std::array<std::uint16_t, kSkip> block{};
  block.fill(kHidden);
  return block;
}();

bool is_hidden_block(const std::uint16_t* at) {
  return std::memcmp(at, kAllHidden.data(), sizeof(kAllHidden)) == 0;
}

std::int64_t count_visible(const std::uint16_t* row, std::int64_t n_kv) {
  std::int64_t n = 0;
  std::int64_t i = 0;
  for (; i + kSkip <= n_kv; i += kSkip) {
    if (is_hidden_block(row + i)) continue;
    for (std::int64_t j = i; j < i + kSkip; ++j) n += row[j] != kHidden ? 1 : 0;
  }
  for (; i < n_kv; ++i) n += row[i] != kHidden ? 1 : 0;
  return n;
}

}  // namespace

bool VisibleCells::collect(const std::uint16_t* row, std::int64_t n_kv,
                           std::vector<std::int32_t>& cells) {
  bool has_bias = false;
  for (std::int64_t i = 0; i < n_kv; i += kSkip) {
    const std::int64_t stop = std::min(n_kv, i + kSkip);
    if (stop - i == kSkip && is_hidden_block(row + i)) continue;
    for (std::int64_t j = i; j < stop; ++j) {
      if (row[j] == kHidden) continue;
      cells.push_back(static_cast<std::int32_t>(j));
      has_bias = has_bias || (row[j] & 0x7FFF) != 0;
    }
  }
  return has_bias;
}

// Appends the visible cells of a row in memory order.
void VisibleCells::extract(const std::uint16_t* row, std::int64_t n_kv) {
  const bool has_bias = collect(row, n_kv, cells_);
  has_bias_ = has_bias_ || has_bias;
}

// Rows belong to one sequence as long as each sees the cell that the row before it writes.
std::int32_t VisibleCells::group_end(const MaskRows& mask, std::span<const std::int64_t> row_cells,
                                     std::int32_t first) const {
  std::int32_t row = first + 1;
  while (row < mask.n_rows) {
    const std::int64_t before = row_cells[static_cast<std::size_t>(row - 1)];
    if (before < 0 || before >= mask.n_kv || mask.row(row)[before] == kHidden) break;
    ++row;
  }
  return row;
}

// Sorts the cells from `begin` on by position. True when positions are known and consecutive.
bool VisibleCells::sort_by_position(std::size_t begin, const PositionTable& table) {
  const auto from = cells_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto earlier = [&table](std::int32_t a, std::int32_t b) {
    return table.at(a) != table.at(b) ? table.at(a) < table.at(b) : a < b;
  };
  if (!std::is_sorted(from, cells_.end(), earlier)) std::sort(from, cells_.end(), earlier);
  if (from == cells_.end()) return true;
  const std::int32_t first = table.at(*from);
  if (first == PositionTable::kUnknown) return false;
  return table.at(cells_.back()) - first == static_cast<std::int32_t>(cells_.end() - from) - 1 &&
         std::adjacent_find(from, cells_.end(), [&table](std::int32_t a, std::int32_t b) {
           return table.at(a) == table.at(b);
         }) == cells_.end();
}

void VisibleCells::add_single(const MaskRows& mask, std::int32_t row, const PositionTable& table) {
  const std::size_t begin = cells_.size();
  extract(mask.row(row), mask.n_kv);
  const bool consecutive = sort_by_position(begin, table);
  const std::int32_t n = static_cast<std::int32_t>(cells_.size() - begin);
  const std::int32_t first = consecutive && n > 0 ? table.at(cells_[begin]) : 0;
  groups_.push_back({row, 1, static_cast<std::int32_t>(begin), first, first + n});
  runs_[static_cast<std::size_t>(row)] = {first, first + n};
}

// Gives each row its run of the group's list; false when some row's cells are not such a run.
bool VisibleCells::find_runs(const MaskRows& mask, const RowGroup& group, std::int32_t end) {
  const std::int32_t* list = cells_.data() + group.list_begin;
  const std::int32_t length = group.end_position - group.first_position;
  std::int32_t begin = 0;
  for (std::int32_t row = group.first_row; row < end; ++row) {
    const std::uint16_t* visible = mask.row(row);
    const std::int64_t n = count_visible(visible, mask.n_kv);
    while (begin < length && visible[list[begin]] == kHidden) ++begin;
    if (n > length - begin) return false;
    const auto stop = static_cast<std::int32_t>(begin + n);
    for (std::int32_t i = begin; i < stop; ++i) {
      if (visible[list[i]] == kHidden) return false;
    }
    runs_[static_cast<std::size_t>(row)] = {group.first_position + begin,
                                            group.first_position + stop};
  }
  return true;
}

void VisibleCells::add_group(const MaskRows& mask, std::int32_t first, std::int32_t end,
                             const PositionTable& table) {
  const std::size_t begin = cells_.size();
  const std::uint16_t* last = mask.row(end - 1);
  merged_.assign(last, last + mask.n_kv);
  for (std::int32_t row = first; row + 1 < end; ++row) {
    const std::uint16_t* values = mask.row(row);
    for (std::int64_t i = 0; i < mask.n_kv; ++i) {
      const auto at = static_cast<std::size_t>(i);
      merged_[at] = merged_[at] == kHidden ? values[i] : merged_[at];
    }
  }
  extract(merged_.data(), mask.n_kv);
  if (sort_by_position(begin, table) && cells_.size() > begin) {
    const std::int32_t start = table.at(cells_[begin]);
    const RowGroup group{first, end - first, static_cast<std::int32_t>(begin), start,
                         start + static_cast<std::int32_t>(cells_.size() - begin)};
    if (find_runs(mask, group, end)) {
      groups_.push_back(group);
      return;
    }
  }
  cells_.resize(begin);
  for (std::int32_t row = first; row < end; ++row) add_single(mask, row, table);
}

void VisibleCells::build(const MaskRows& mask, std::span<const std::int64_t> row_cells,
                         const PositionTable& table) {
  cells_.clear();
  groups_.clear();
  has_bias_ = false;
  runs_.assign(static_cast<std::size_t>(mask.n_rows), RowRun());
  for (std::int32_t row = 0; row < mask.n_rows;) {
    const std::int32_t end = group_end(mask, row_cells, row);
    if (end == row + 1) {
      add_single(mask, row, table);
    } else {
      add_group(mask, row, end, table);
    }
    row = end;
  }
}

}  // namespace graft
