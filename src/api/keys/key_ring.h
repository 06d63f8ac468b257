// KeyRing: the API keys that are valid at one moment, looked up by hash. Immutable, replaced as a
// whole through Snapshot<KeyRing>; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/keys/api_key.h"
#include "base/result.h"

namespace graft::api {

class KeyRing {
 public:
  // Without keys: nobody is asked for one.
  KeyRing() = default;

  // Keys that `before` has too go on with their usage. `is_closed`: inference needs a key even if
  // there is none for it. Errors: two keys with one name or one hash.
  static Result<KeyRing> create(std::vector<ApiKey> keys, bool is_closed, const KeyRing& before);

  // The key with that text; null when there is none. The time does not depend on how much of a key
  // was guessed.
  std::shared_ptr<const ApiKey> find(std::string_view text) const;

  bool needs_key_for_inference() const { return needs_key_for_inference_; }
  // True as soon as there is any key.
  bool needs_key_for_admin() const { return needs_key_for_admin_; }
  std::size_t size() const { return by_slot_.size(); }

 private:
  std::shared_ptr<const ApiKey> find(const KeyHash& hash) const;

  std::unordered_multimap<std::uint64_t, std::shared_ptr<const ApiKey>> by_slot_;
  bool needs_key_for_inference_ = false;
  bool needs_key_for_admin_ = false;
};

}  // namespace graft::api
