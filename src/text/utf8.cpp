#include "text/utf8.h"

#include <algorithm>

namespace graft {

std::uint32_t PartialCharacter::lowest() const { return std::max(value << (6 * n_missing), least); }

std::uint32_t PartialCharacter::highest() const {
  const std::uint32_t all = (value << (6 * n_missing)) | ((1U << (6 * n_missing)) - 1);
  return std::min(all, kMaxCodePoint);
}

bool push_utf8(PartialCharacter& partial, std::uint8_t byte) {
  if (partial.empty()) {
    if (byte < 0x80) {
      partial = {byte, 0, 0};
    } else if (byte >= 0xC2 && byte <= 0xDF) {
      partial = {byte & 0x1FU, 1, 0x80};
    } else if (byte >= 0xE0 && byte <= 0xEF) {
      partial = {byte & 0x0FU, 2, 0x800};
    } else if (byte >= 0xF0 && byte <= 0xF4) {
      partial = {byte & 0x07U, 3, 0x10000};
    } else {
      return false;
    }
    return true;
  }
  if ((byte & 0xC0U) != 0x80) return false;
  partial.value = (partial.value << 6) | (byte & 0x3FU);
  --partial.n_missing;
  if (partial.lowest() > partial.highest()) return false;
  // The surrogates fill a whole range of second bytes, so this is known early too.
  return !is_surrogate(partial.lowest()) || !is_surrogate(partial.highest());
}

std::optional<CodePoint> decode_utf8(std::string_view text, std::size_t at) {
  PartialCharacter partial;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (!push_utf8(partial, static_cast<std::uint8_t>(text[i]))) return std::nullopt;
    if (partial.empty()) return CodePoint{partial.value, i + 1 - at};
  }
  return std::nullopt;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto byte = [&](std::uint32_t value) { out += static_cast<char>(value); };
  const auto continuation = [&](unsigned shift) { byte(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | (code >> 6));
    continuation(0);
  } else if (code < 0x10000) {
    byte(0xE0 | (code >> 12));
    continuation(6);
    continuation(0);
  } else {
    byte(0xF0 | (code >> 18));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

}  // namespace graft
