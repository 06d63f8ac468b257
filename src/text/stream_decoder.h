// StreamDecoder: token pieces in, readable text out, as early as it is certain.
//
// - Never splits a UTF-8 character. Each maximal broken sequence of bytes becomes one U+FFFD.
// - Stop strings match on the text, wherever token borders lie. The text ends before the stop
// string
//   that completes first (of several that complete with the same byte, the longest). Text is held
//   back only while it may be the beginning of a stop string.
// - Time is linear in the text, times the number of stop strings (at most 32).
// One decoder per generated sequence; used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace graft {

inline constexpr std::size_t kMaxStopStrings = 32;
inline constexpr std::size_t kMaxStopStringBytes = 256;

// Finds the first of several strings in a text that arrives byte by byte.
class StopMatcher {
 public:
  // Requires: strings not empty, at most kMaxStopStringBytes long.
  explicit StopMatcher(const std::vector<std::string>& strings);

  // Length of the stop string that this byte completes, the longest if several; 0 if none.
  std::size_t push(char byte);

  // Length of the longest end of the text so far that a stop string begins with.
  std::size_t n_pending() const { return n_pending_; }

 private:
  // One Knuth-Morris-Pratt automaton per string.
  struct Pattern {
    std::string text;
    std::vector<std::uint16_t> border;  // border[i]: longest proper border of the first i + 1 bytes
    std::size_t n_matched = 0;
  };

  std::vector<Pattern> patterns_;
  std::size_t n_pending_ = 0;
};

// Turns bytes into whole, valid UTF-8 characters.
class Utf8Repair {
 public:
  // Appends to `out` what became certain with this byte: nothing, a character, or U+FFFD and
  // perhaps more.
  void push(char byte, std::string& out);

  // Appends U+FFFD if a character is unfinished.
  void finish(std::string& out);

 private:
  void start(std::uint8_t byte, std::string& out);

  std::string partial_;        // bytes of the unfinished character
  std::size_t n_missing_ = 0;  // further bytes it needs
  std::uint8_t low_ = 0x80;    // range of the next byte
  std::uint8_t high_ = 0xBF;
};

class StreamDecoder {
 public:
  // `keeps_stop`: the stop string that ends the text is part of it. Fails if there are too many
  // stop strings, or one is empty, too long or not UTF-8.
  static Result<StreamDecoder> create(const std::vector<std::string>& stop_strings,
                                      bool keeps_stop = false);

  // The text that became certain with this token's piece. Empty once stopped() is true.
  std::string push(std::string_view piece);

  // What was held back, at the end of a generation without a stop string.
  std::string finish();

  // True once a stop string was seen; all behind it is dropped.
  bool stopped() const { return stopped_; }
  // The one that was seen; "" before.
  const std::string& stop_string() const { return stop_string_; }

 private:
  StreamDecoder(const std::vector<std::string>& stop_strings, bool keeps_stop)
      : matcher_(stop_strings), keeps_stop_(keeps_stop) {}
  void match(std::string_view characters);
  std::string take_certain(std::size_t n_kept);

  Utf8Repair repair_;
  StopMatcher matcher_;
  bool keeps_stop_;
  std::string held_;  // text not yet handed out
  std::string stop_string_;
  bool stopped_ = false;
};

}  // namespace graft
