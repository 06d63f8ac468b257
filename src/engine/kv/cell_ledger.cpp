#include "engine/kv/cell_ledger.h"

#include <cstddef>

#include "base/check.h"

namespace graft {

namespace {
std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
}  // namespace

CellLedger::CellLedger(std::int32_t n_cells, std::int32_t n_sequences)
    : sequences_(index(n_sequences)), n_holders_(index(n_cells), 0) {
  free_.reserve(index(n_cells));
  for (std::int32_t cell = n_cells; cell > 0; --cell) free_.push_back(cell - 1);
}

std::int32_t CellLedger::length(std::int32_t sequence) const {
  return static_cast<std::int32_t>(sequences_[index(sequence)].size());
}

void CellLedger::extend(std::int32_t sequence, std::int32_t n_tokens) {
  GRAFT_CHECK(n_tokens >= 0 && n_tokens <= n_free());
  auto& cells = sequences_[index(sequence)];
  for (std::int32_t i = 0; i < n_tokens; ++i) {
    cells.push_back(free_.back());
    n_holders_[index(free_.back())] = 1;
    free_.pop_back();
  }
}

void CellLedger::truncate(std::int32_t sequence, std::int32_t n_tokens) {
  GRAFT_CHECK(n_tokens >= 0 && n_tokens <= length(sequence));
  auto& cells = sequences_[index(sequence)];
  while (cells.size() > index(n_tokens)) {
    const std::int32_t cell = cells.back();
    cells.pop_back();
    if (--n_holders_[index(cell)] == 0) free_.push_back(cell);
  }
}

void CellLedger::copy(std::int32_t from, std::int32_t to, std::int32_t n_tokens) {
  GRAFT_CHECK(from != to && length(to) == 0);
  GRAFT_CHECK(n_tokens >= 0 && n_tokens <= length(from));
  const auto& source = sequences_[index(from)];
  auto& target = sequences_[index(to)];
  target.assign(source.begin(), source.begin() + n_tokens);
  for (const std::int32_t cell : target) ++n_holders_[index(cell)];
}

void CellLedger::clear() {
  for (std::int32_t sequence = 0; sequence < n_sequences(); ++sequence) truncate(sequence, 0);
}

void CellLedger::check_invariants() const {
  std::vector<std::int32_t> n_holders(n_holders_.size(), 0);
  for (const auto& cells : sequences_) {
    for (const std::int32_t cell : cells) ++n_holders[index(cell)];
  }
  GRAFT_CHECK(n_holders == n_holders_);
  std::size_t n_unheld = 0;
  for (const std::int32_t n : n_holders_) n_unheld += n == 0 ? 1 : 0;
  GRAFT_CHECK(n_unheld == free_.size());
  for (const std::int32_t cell : free_) GRAFT_CHECK(n_holders_[index(cell)] == 0);
}

}  // namespace graft
