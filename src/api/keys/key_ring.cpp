#include "api/keys/key_ring.h"

#include <unordered_set>
#include <utility>

namespace graft::api {

Result<KeyRing> KeyRing::create(std::vector<ApiKey> keys, bool is_closed, const KeyRing& before) {
  KeyRing ring;
  ring.needs_key_for_inference_ = is_closed;
  ring.needs_key_for_admin_ = is_closed || !keys.empty();
  std::unordered_set<std::string> names;
  for (ApiKey& key : keys) {
    if (!names.insert(key.name).second) {
      return invalid_argument("two API keys are named '" + key.name + "'");
    }
    if (const auto twin = ring.find(key.hash)) {
      return invalid_argument("the API keys '" + twin->name + "' and '" + key.name +
                              "' have the same hash");
    }
    if (!key.is_admin) ring.needs_key_for_inference_ = true;
    if (const auto old = before.find(key.hash)) key.usage = old->usage;
    const std::uint64_t slot = key.hash.table_slot();
    ring.by_slot_.emplace(slot, std::make_shared<const ApiKey>(std::move(key)));
  }
  return ring;
}

std::shared_ptr<const ApiKey> KeyRing::find(std::string_view text) const {
  return find(KeyHash::of(text));
}

std::shared_ptr<const ApiKey> KeyRing::find(const KeyHash& hash) const {
  const auto [first, last] = by_slot_.equal_range(hash.table_slot());
  for (auto at = first; at != last; ++at) {
    if (at->second->hash.matches(hash)) return at->second;
  }
  return nullptr;
}

}  // namespace graft::api
