#include "text/stream_decoder.h"

#include <algorithm>
#include <utility>

namespace graft {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_utf8(std::string_view text) {
  Utf8Repair repair;
  std::string repaired;
  for (const char byte : text) {
    repair.push(byte, repaired);
  }
  repair.finish(repaired);
  return repaired == text;
}

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& strings) {
  for (const std::string& string : strings) {
    Pattern pattern{.text = string, .border = std::vector<std::uint16_t>(string.size(), 0)};
    std::size_t length = 0;
    for (std::size_t i = 1; i < string.size(); ++i) {
      while (length > 0 && string[i] != string[length]) {
        length = pattern.border[length - 1];
      }
      if (string[i] == string[length]) {
        ++length;
      }
      pattern.border[i] = static_cast<std::uint16_t>(length);
    }
    patterns_.push_back(std::move(pattern));
  }
}

std::size_t StopMatcher::push(char byte) {
  std::size_t completed = 0;
  n_pending_ = 0;
  for (Pattern& pattern : patterns_) {
    std::size_t& n = pattern.n_matched;
    while (n > 0 && byte != pattern.text[n]) {
      n = pattern.border[n - 1];
    }
    if (byte == pattern.text[n]) {
      ++n;
    }
    if (n == pattern.text.size()) {
      completed = std::max(completed, n);
      n = pattern.border[n - 1];
    }
    n_pending_ = std::max(n_pending_, n);
  }
  return completed;
}

void Utf8Repair::push(char byte, std::string& out) {
  const auto value = static_cast<std::uint8_t>(byte);
  if (n_missing_ == 0) {
    start(value, out);
    return;
  }
  if (value < low_ || value > high_) {
    // The bytes so far are one broken sequence; this byte may begin something new.
    finish(out);
    start(value, out);
    return;
  }
  partial_ += byte;
  low_ = 0x80;
  high_ = 0xBF;
  if (--n_missing_ == 0) {
    out += partial_;
    partial_.clear();
  }
}

void Utf8Repair::finish(std::string& out) {
  if (n_missing_ > 0) {
    out += kReplacement;
    partial_.clear();
    n_missing_ = 0;
  }
}

// The ranges of Unicode's table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
void Utf8Repair::start(std::uint8_t byte, std::string& out) {
  low_ = 0x80;
  high_ = 0xBF;
  if (byte < 0x80) {
    out += static_cast<char>(byte);
    return;
  }
  if (byte >= 0xC2 && byte <= 0xDF) {
    n_missing_ = 1;
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    n_missing_ = 2;
    low_ = byte == 0xE0 ? 0xA0 : 0x80;
    high_ = byte == 0xED ? 0x9F : 0xBF;
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    n_missing_ = 3;
    low_ = byte == 0xF0 ? 0x90 : 0x80;
    high_ = byte == 0xF4 ? 0x8F : 0xBF;
  } else {
    out += kReplacement;
    return;
  }
  partial_.assign(1, static_cast<char>(byte));
}

Result<StreamDecoder> StreamDecoder::create(const std::vector<std::string>& stop_strings,
                                            bool keeps_stop) {
  if (stop_strings.size() > kMaxStopStrings) {
    return invalid_argument("stop has " + std::to_string(stop_strings.size()) +
                                " strings; the limit is " + std::to_string(kMaxStopStrings),
                            "stop");
  }
  for (const std::string& string : stop_strings) {
    if (string.empty()) {
      return invalid_argument("a stop string must not be empty", "stop");
    }
    if (string.size() > kMaxStopStringBytes) {
      return invalid_argument("a stop string has " + std::to_string(string.size()) +
                                  " bytes; the limit is " + std::to_string(kMaxStopStringBytes),
                              "stop");
    }
    if (!is_utf8(string)) {
      return invalid_argument("a stop string is not valid UTF-8", "stop");
    }
  }
  return StreamDecoder(stop_strings, keeps_stop);
}

std::string StreamDecoder::push(std::string_view piece) {
  std::string characters;
  for (const char byte : piece) {
    repair_.push(byte, characters);
  }
  match(characters);
  return take_certain(stopped_ ? 0 : matcher_.n_pending());
}

std::string StreamDecoder::finish() {
  std::string characters;
  repair_.finish(characters);
  match(characters);
  return take_certain(0);
}

void StreamDecoder::match(std::string_view characters) {
  for (const char byte : characters) {
    if (stopped_) {
      return;
    }
    held_ += byte;
    if (const std::size_t length = matcher_.push(byte); length > 0) {
      stop_string_ = held_.substr(held_.size() - length);
      if (!keeps_stop_) held_.resize(held_.size() - length);
      stopped_ = true;
    }
  }
}

std::string StreamDecoder::take_certain(std::size_t n_kept) {
  std::string certain = held_.substr(0, held_.size() - n_kept);
  held_.erase(0, certain.size());
  return certain;
}

}  // namespace graft
