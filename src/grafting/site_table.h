// SiteTable: every place of the model's graphs where a module may act, with its shape. Filled while
// a context reserves its compute buffers, immutable afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "modules/site.h"

namespace graft {

struct Site {
  SiteKey key;
  std::int64_t n_in = 0;  // kGetRows: rows of the table
  std::int64_t n_out = 0;
  std::int64_t n_experts = 1;  // kMatMulId: experts of the weight
  std::string refusal;         // why modules may not act here; empty when they may
};

class SiteTable {
 public:
  // Index of the site, or -1.
  std::int32_t find(const SiteKey& key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? -1 : found->second;
  }
  const Site& at(std::int32_t index) const { return sites_[static_cast<std::size_t>(index)]; }
  std::int32_t size() const { return static_cast<std::int32_t>(sites_.size()); }

  // Adds the site, or keeps the one that is there. Returns its index.
  std::int32_t add(Site site);

  // Marks a site as closed to modules. Requires: a valid index.
  void refuse(std::int32_t index, std::string reason) {
    sites_[static_cast<std::size_t>(index)].refusal = std::move(reason);
  }

 private:
  std::vector<Site> sites_;
  std::unordered_map<SiteKey, std::int32_t, SiteKeyHash> index_;
};

}  // namespace graft
