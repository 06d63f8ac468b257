// ApiKey: a key as the server keeps it: never itself, only its hash, with what it may do. Immutable
// once in a KeyRing; any thread.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/keys/key_hash.h"
#include "api/keys/key_usage.h"

namespace graft::api {

struct ApiKey {
  std::string name;  // unique; may be logged
  KeyHash hash;
  bool is_admin = false;  // may use every route and every module
  std::string tenant;     // whose cached prompts it shares; the name, unless said otherwise
  // Module names, or "namespace/*"; nothing = all.
  std::optional<std::vector<std::string>> modules = {};
  KeyLimits limits = {};
  std::shared_ptr<KeyUsage> usage = std::make_shared<KeyUsage>();

  bool may_use(std::string_view module) const {
    if (is_admin || !modules) return true;
    return std::any_of(modules->begin(), modules->end(), [module](std::string_view pattern) {
      if (!pattern.ends_with("/*")) return module == pattern;
      return module.starts_with(pattern.substr(0, pattern.size() - 1));
    });
  }
};

}  // namespace graft::api
