// TenantShares: who uses how much of a cache tier, and who must give way when it is full. A tier is
// shared evenly among the tenants that have something in it; what others leave idle may be used,
// and is the first to go. So no tenant can push out what another keeps within its share.
//
// Belongs to the engine thread. Invariant: total() is the sum over tenants; none has zero.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/check.h"

namespace graft {

class TenantShares {
 public:
  void add(std::string_view tenant, std::int64_t amount) {
    total_ += amount;
    const auto found = uses_.find(tenant);
    if (found == uses_.end()) {
      if (amount != 0) uses_.emplace(std::string(tenant), amount);
      return;
    }
    found->second += amount;
    GRAFT_CHECK(found->second >= 0);
    if (found->second == 0) uses_.erase(found);
  }
  std::int64_t use(std::string_view tenant) const {
    const auto found = uses_.find(tenant);
    return found == uses_.end() ? 0 : found->second;
  }
  std::int64_t total() const { return total_; }

  // Whether `tenant` would use at least its even share of the tier if `grower` had `extra` more. At
  // least one tenant would, unless all is zero.
  bool is_at_share(std::string_view tenant, std::string_view grower = {},
                   std::int64_t extra = 0) const {
    const bool is_new = extra > 0 && use(grower) == 0;
    const auto n_tenants = static_cast<std::int64_t>(uses_.size()) + (is_new ? 1 : 0);
    const std::int64_t own = use(tenant) + (tenant == grower ? extra : 0);
    return own * n_tenants >= total_ + extra;
  }

 private:
  std::map<std::string, std::int64_t, std::less<>> uses_;
  std::int64_t total_ = 0;
};

}  // namespace graft
