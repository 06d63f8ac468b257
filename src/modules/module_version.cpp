#include "modules/module_version.h"

#include <array>
#include <bit>
#include <span>

#include "base/sha256.h"

namespace graft {
namespace {

void add_u32(Sha256& hash, std::uint32_t value) {
  std::array<std::byte, 4> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((value >> (8 * i)) & 0xFF);
  }
  hash.update(bytes);
}

}  // namespace

std::string fingerprint(const AttachmentSet& set) {
  if (set.empty()) return {};
  Sha256 hash;
  for (const Attachment& attachment : set.attachments) {
    // The length goes first, so that no two sets can run into each other.
    const std::string& digest = attachment.module->digest();
    add_u32(hash, static_cast<std::uint32_t>(digest.size()));
    hash.update(std::as_bytes(std::span(digest)));
    // -0 and +0 act alike, so they must be one identity.
    const float scale = attachment.scale == 0.0F ? 0.0F : attachment.scale;
    add_u32(hash, std::bit_cast<std::uint32_t>(scale));
    add_u32(hash, std::bit_cast<std::uint32_t>(attachment.start_position));
  }
  return hash.finish_hex();
}

}  // namespace graft
