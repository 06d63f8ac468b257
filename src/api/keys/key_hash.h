// KeyHash: the SHA-256 of an API key, all that is ever kept of one. It has no operator==, so that
// nobody compares hashes in a time that depends on them; matches() is the only way. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace graft::api {

class KeyHash {
 public:
  static KeyHash of(std::string_view key);
  // 64 lower-case hexadecimal digits, or nothing.
  static std::optional<KeyHash> from_hex(std::string_view hex);

  // In constant time.
  bool matches(const KeyHash& other) const;
  // Where to look in a table. What a caller can learn from it is a part of a hash that only the
  // holder of the key can choose.
  std::uint64_t table_slot() const;
  const std::string& hex() const { return hex_; }

 private:
  explicit KeyHash(std::string hex) : hex_(std::move(hex)) {}
  std::string hex_;
};

}  // namespace graft::api
