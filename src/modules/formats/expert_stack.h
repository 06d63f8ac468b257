// ExpertStack: collects the factors of single experts and makes the one term of a MUL_MAT_ID site.
// Experts that the file leaves out get zeros, lower ranks are padded with zeros, different scales
// are folded into B. Used by one reader at a time.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "modules/adapter.h"

namespace graft {

class ExpertStack {
 public:
  ExpertStack(SiteKey site, std::int64_t n_experts)
      : site_(std::move(site)), n_experts_(n_experts) {}

  // False when the expert is there already.
  // Requires: 0 <= expert < n_experts, the same n_in and n_out for all.
  bool add(std::int64_t expert, LoraTerm term);

  std::int64_t n_added() const { return static_cast<std::int64_t>(parts_.size()); }
  // Of the finished term, in the widest type.
  std::uint64_t stacked_bytes() const;

  // Requires: n_added() > 0.
  LoraTerm finish() const;

 private:
  std::int64_t max_rank() const;
  bool needs_f32() const;
  static void copy_rows(const FactorMatrix& from, std::int64_t first_row, FactorMatrix& to);

  SiteKey site_;
  std::int64_t n_experts_;
  std::map<std::int64_t, LoraTerm> parts_;  // by expert
};

}  // namespace graft
