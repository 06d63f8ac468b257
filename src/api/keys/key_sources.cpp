#include "api/keys/key_sources.h"

#include <utility>

#include "api/keys/key_file.h"

namespace graft::api {
namespace {

void append_keys(std::vector<ApiKey>& keys, const std::vector<std::string>& texts,
                 const std::string& flag, bool is_admin) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string name = flag + "-" + std::to_string(i + 1);
    keys.push_back(
        {.name = name, .hash = KeyHash::of(texts[i]), .is_admin = is_admin, .tenant = name});
  }
}

}  // namespace

Result<std::shared_ptr<const KeyRing>> load_key_ring(const KeySources& sources,
                                                     const KeyRing& before) {
  std::vector<ApiKey> keys;
  append_keys(keys, sources.keys, "--api-key", false);
  append_keys(keys, sources.admin_keys, "--admin-key", true);
  if (!sources.file.empty()) {
    GRAFT_ASSIGN_OR_RETURN(auto from_file, read_key_file(sources.file));
    keys.insert(keys.end(), std::make_move_iterator(from_file.begin()),
                std::make_move_iterator(from_file.end()));
  }
  GRAFT_ASSIGN_OR_RETURN(KeyRing ring,
                         KeyRing::create(std::move(keys), sources.closes_inference(), before));
  return std::make_shared<const KeyRing>(std::move(ring));
}

}  // namespace graft::api
