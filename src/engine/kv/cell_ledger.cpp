#include "engine/kv/cell_ledger.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace graft {

namespace {
std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
}  // namespace

CellLedger::CellLedger(std::int32_t n_cells, std::int32_t n_sequences, std::int32_t n_live)
    : n_live_(n_live),
      sequences_(index(n_sequences)),
      n_holders_(index(n_cells), 0),
      n_live_holders_(index(n_cells), 0) {
  GRAFT_CHECK(n_live <= n_sequences);
  free_.reserve(index(n_cells));
  for (std::int32_t cell = n_cells; cell > 0; --cell) free_.push_back(cell - 1);
}

std::int32_t CellLedger::length(std::int32_t sequence) const {
  return static_cast<std::int32_t>(sequences_[index(sequence)].size());
}

void CellLedger::hold(std::int32_t sequence, std::int32_t cell) {
  const bool was_idle = n_holders_[index(cell)] > 0 && n_live_holders_[index(cell)] == 0;
  ++n_holders_[index(cell)];
  n_live_holders_[index(cell)] += is_live(sequence) ? 1 : 0;
  const bool is_idle = n_live_holders_[index(cell)] == 0;
  n_idle_ += (is_idle ? 1 : 0) - (was_idle ? 1 : 0);
}

void CellLedger::let_go(std::int32_t sequence, std::int32_t cell) {
  const bool was_idle = n_live_holders_[index(cell)] == 0;
  n_live_holders_[index(cell)] -= is_live(sequence) ? 1 : 0;
  const bool is_free = --n_holders_[index(cell)] == 0;
  const bool is_idle = !is_free && n_live_holders_[index(cell)] == 0;
  n_idle_ += (is_idle ? 1 : 0) - (was_idle ? 1 : 0);
  if (is_free) free_.push_back(cell);
}

void CellLedger::extend(std::int32_t sequence, std::int32_t n_tokens) {
  GRAFT_CHECK(n_tokens >= 0 && n_tokens <= n_free());
  auto& cells = sequences_[index(sequence)];
  for (std::int32_t i = 0; i < n_tokens; ++i) {
    const std::int32_t cell = free_.back();
    free_.pop_back();
    cells.push_back(cell);
    hold(sequence, cell);
  }
}

void CellLedger::truncate(std::int32_t sequence, std::int32_t n_tokens) {
  GRAFT_CHECK(n_tokens >= 0 && n_tokens <= length(sequence));
  auto& cells = sequences_[index(sequence)];
  while (cells.size() > index(n_tokens)) {
    const std::int32_t cell = cells.back();
    cells.pop_back();
    let_go(sequence, cell);
  }
}

void CellLedger::share(std::int32_t from, std::int32_t to, std::int32_t begin, std::int32_t end) {
  GRAFT_CHECK(from != to && length(to) == begin);
  GRAFT_CHECK(begin >= 0 && begin <= end && end <= length(from));
  const auto& source = sequences_[index(from)];
  auto& target = sequences_[index(to)];
  for (std::int32_t i = begin; i < end; ++i) {
    target.push_back(source[index(i)]);
    hold(to, target.back());
  }
}

void CellLedger::clear() {
  for (std::int32_t sequence = 0; sequence < n_sequences(); ++sequence) truncate(sequence, 0);
}

std::int32_t CellLedger::n_held_live(std::int32_t sequence, std::int32_t begin, std::int32_t end,
                                     std::int32_t n_live) const {
  GRAFT_CHECK(begin >= 0 && begin <= end && end <= length(sequence));
  const auto first = sequences_[index(sequence)].begin();
  const auto held = [&](std::int32_t cell) { return n_live_holders_[index(cell)] >= n_live; };
  return static_cast<std::int32_t>(std::count_if(first + begin, first + end, held));
}

void CellLedger::check_invariants() const {
  std::vector<std::int32_t> n_holders(n_holders_.size(), 0);
  std::vector<std::int32_t> n_live_holders(n_holders_.size(), 0);
  for (std::int32_t sequence = 0; sequence < n_sequences(); ++sequence) {
    for (const std::int32_t cell : sequences_[index(sequence)]) {
      ++n_holders[index(cell)];
      n_live_holders[index(cell)] += is_live(sequence) ? 1 : 0;
    }
  }
  GRAFT_CHECK(n_holders == n_holders_);
  GRAFT_CHECK(n_live_holders == n_live_holders_);
  std::size_t n_unheld = 0;
  std::int32_t n_idle = 0;
  for (std::size_t cell = 0; cell < n_holders_.size(); ++cell) {
    n_unheld += n_holders_[cell] == 0 ? 1 : 0;
    n_idle += n_holders_[cell] > 0 && n_live_holders_[cell] == 0 ? 1 : 0;
  }
  GRAFT_CHECK(n_unheld == free_.size());
  GRAFT_CHECK(n_idle == n_idle_);
  for (const std::int32_t cell : free_) GRAFT_CHECK(n_holders_[index(cell)] == 0);
}

}  // namespace graft
