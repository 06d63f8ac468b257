#include "modules/formats/expert_stack.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "modules/formats/factors.h"

namespace graft {
namespace {

FactorMatrix zeros(FactorType type, std::int64_t n_rows, std::int64_t n_cols) {
  FactorMatrix matrix;
  matrix.type = type;
  matrix.n_rows = n_rows;
  matrix.n_cols = n_cols;
  matrix.bytes.resize(static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(n_cols) *
                      bytes_per_value(type));
  return matrix;
}

}  // namespace

bool ExpertStack::add(std::int64_t expert, LoraTerm term) {
  GRAFT_CHECK(expert >= 0 && expert < n_experts_);
  if (!parts_.empty()) {
    const LoraTerm& first = parts_.begin()->second;
    GRAFT_CHECK(first.n_in == term.n_in && first.n_out == term.n_out);
  }
  return parts_.emplace(expert, std::move(term)).second;
}

std::int64_t ExpertStack::max_rank() const {
  std::int64_t rank = 0;
  for (const auto& [expert, term] : parts_) rank = std::max(rank, term.rank);
  return rank;
}

std::uint64_t ExpertStack::stacked_bytes() const {
  const LoraTerm& first = parts_.begin()->second;
  return static_cast<std::uint64_t>(n_experts_) * static_cast<std::uint64_t>(max_rank()) *
         static_cast<std::uint64_t>(first.n_in + first.n_out) * sizeof(float);
}

bool ExpertStack::needs_f32() const {
  const LoraTerm& first = parts_.begin()->second;
  return std::any_of(parts_.begin(), parts_.end(), [&](const auto& part) {
    return part.second.scale != first.scale || part.second.a.type != first.a.type ||
           part.second.b.type != first.b.type;
  });
}

// The target may have more columns than the source; they stay zero.
void ExpertStack::copy_rows(const FactorMatrix& from, std::int64_t first_row, FactorMatrix& to) {
  const std::size_t n_bytes = bytes_per_value(from.type);
  const std::size_t from_row = static_cast<std::size_t>(from.n_cols) * n_bytes;
  const std::size_t to_row = static_cast<std::size_t>(to.n_cols) * n_bytes;
  for (std::int64_t row = 0; row < from.n_rows; ++row) {
    std::memcpy(to.bytes.data() + static_cast<std::size_t>(first_row + row) * to_row,
                from.bytes.data() + static_cast<std::size_t>(row) * from_row, from_row);
  }
}

LoraTerm ExpertStack::finish() const {
  const LoraTerm& first = parts_.begin()->second;
  const bool as_f32 = needs_f32();
  LoraTerm term;
  term.site = site_;
  term.n_in = first.n_in;
  term.n_out = first.n_out;
  term.out_offset = first.out_offset;
  term.rank = max_rank();
  term.n_experts = n_experts_;
  term.scale = as_f32 ? 1.0F : first.scale;
  term.a = zeros(as_f32 ? FactorType::kF32 : first.a.type, n_experts_ * term.rank, term.n_in);
  term.b = zeros(as_f32 ? FactorType::kF32 : first.b.type, n_experts_ * term.n_out, term.rank);
  for (const auto& [index, expert] : parts_) {
    if (as_f32) {
      copy_rows(scale_to_f32(expert.a, 1.0F), index * term.rank, term.a);
      copy_rows(scale_to_f32(expert.b, expert.scale), index * term.n_out, term.b);
    } else {
      copy_rows(expert.a, index * term.rank, term.a);
      copy_rows(expert.b, index * term.n_out, term.b);
    }
  }
  return term;
}

}  // namespace graft
