// PrefixPath: a run of tokens from position 0 as the prefix cache knows it. Keys and values of a
// position depend on everything here up to that position, and on nothing else: whose cache it is
// and how it is computed (root), the tokens, and for each token which attachments acted on it (its
// role). Two paths share a beginning when all three agree there; they are compared, never hashed
// alone.
//
// Borrowed values; any thread. Requires: roles in ascending order, the first begins at 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/request.h"

namespace graft {

// From `begin` up to the next run's begin.
struct RoleRun {
  std::int32_t begin = 0;
  std::string role;  // fingerprint of the attachments that act; "" = the base alone

  friend bool operator==(const RoleRun&, const RoleRun&) = default;
};

struct PrefixPath {
  std::string_view root;    // tenant, salt, weights and way of computing, as one text
  std::string_view tenant;  // whose share of the cache it uses
  std::span<const TokenId> tokens;
  std::span<const RoleRun> roles;

  std::int32_t n_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  PrefixPath first(std::int32_t n) const {
    return {root, tenant, tokens.first(static_cast<std::size_t>(n)), roles};
  }
  std::size_t role_at(std::int32_t position) const {
    const auto after =
        std::upper_bound(roles.begin(), roles.end(), position,
                         [](std::int32_t p, const RoleRun& run) { return p < run.begin; });
    return static_cast<std::size_t>(after - roles.begin()) - 1;
  }
  // Where the role at `position` ends, at the latest with the tokens.
  std::int32_t role_end(std::int32_t position) const {
    const std::size_t next = role_at(position) + 1;
    return next < roles.size() ? std::min(roles[next].begin, n_tokens()) : n_tokens();
  }
};

// A path that owns what it is made of.
struct OwnedPath {
  std::string root;
  std::string tenant;
  std::vector<TokenId> tokens;
  std::vector<RoleRun> roles;

  PrefixPath view() const { return {root, tenant, tokens, roles}; }
};

}  // namespace graft
