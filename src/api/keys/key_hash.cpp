#include "api/keys/key_hash.h"

#include <charconv>

#include "base/secret.h"

namespace graft::api {
namespace {

constexpr std::size_t kHexDigits = 64;
constexpr std::size_t kSlotDigits = 16;

}  // namespace

KeyHash KeyHash::of(std::string_view key) { return KeyHash(sha256_hex(key)); }

std::optional<KeyHash> KeyHash::from_hex(std::string_view hex) {
  if (hex.size() != kHexDigits ||
      hex.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return std::nullopt;
  }
  return KeyHash(std::string(hex));
}

bool KeyHash::matches(const KeyHash& other) const {
  return equal_in_constant_time(hex_, other.hex_);
}

std::uint64_t KeyHash::table_slot() const {
  std::uint64_t slot = 0;
  std::from_chars(hex_.data(), hex_.data() + kSlotDigits, slot, 16);
  return slot;
}

}  // namespace graft::api
