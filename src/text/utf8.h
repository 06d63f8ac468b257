// UTF-8, one code point at a time, strictly: no overlong forms, no surrogates, nothing above
// U+10FFFF. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace graft {

inline constexpr std::uint32_t kMaxCodePoint = 0x10FFFF;

inline bool is_surrogate(std::uint32_t code) { return code >= 0xD800 && code <= 0xDFFF; }

// A character of which only the first bytes are known.
struct PartialCharacter {
  std::uint32_t value = 0;     // of the bits so far
  std::uint8_t n_missing = 0;  // further bytes
  std::uint32_t least = 0;     // what the whole character must be at least, else it is overlong

  bool empty() const { return n_missing == 0; }
  // The code points it may still become.
  std::uint32_t lowest() const;
  std::uint32_t highest() const;
};

// Takes the next byte. False if no character has these bytes. When `partial` is empty afterwards,
// `partial.value` is a whole code point.
bool push_utf8(PartialCharacter& partial, std::uint8_t byte);

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t n_bytes = 0;
};

// The code point that begins at text[at]; nothing if there is none. Requires: at < text.size().
std::optional<CodePoint> decode_utf8(std::string_view text, std::size_t at);

// Requires: a code point that is no surrogate.
void append_utf8(std::string& out, std::uint32_t code);

}  // namespace graft
