// Files of API keys: any bytes give keys that are valid, or an error; what is written is read back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "api/keys/key_file.h"
#include "api/keys/key_ring.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const auto keys =
      graft::api::parse_key_file({reinterpret_cast<const char*>(bytes), size}, "keys");
  if (!keys) {
    require(!keys.error().message.empty());
    return 0;
  }
  for (const graft::api::ApiKey& key : *keys) {
    require(static_cast<bool>(graft::api::check_key(key)));
    const std::string line = graft::api::key_file_line(key);
    const auto again = graft::api::parse_key_file(line, "line");
    require(again && again->size() == 1 && graft::api::key_file_line(again->front()) == line);
  }
  const auto ring = graft::api::KeyRing::create(*keys, true, {});
  if (ring) require(ring->size() == keys->size());
  return 0;
}
