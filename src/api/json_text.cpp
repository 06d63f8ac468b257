#include "api/json_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

namespace graft::api {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

struct LeadByte {
  std::size_t length;
  unsigned char second_min;  // of the second byte: excludes overlong forms and surrogates
  unsigned char second_max;
};

LeadByte classify_lead(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

void append_escaped(std::string& out, unsigned char byte) {
  switch (byte) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  out += "\\u00";
  out.push_back(kHexDigits[byte >> 4]);
  out.push_back(kHexDigits[byte & 15]);
}

template <typename Number>
void append_shortest(std::string& out, Number value) {
  std::array<char, 64> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  out.append(text.data(), result.ptr);
}

}  // namespace

std::size_t utf8_sequence_length(std::string_view text) {
  if (text.empty()) return 0;
  const LeadByte lead = classify_lead(static_cast<unsigned char>(text[0]));
  if (lead.length <= 1) return lead.length;
  if (text.size() < lead.length) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  if (second < lead.second_min || second > lead.second_max) return 0;
  for (std::size_t i = 2; i < lead.length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  return lead.length;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::int64_t count_characters(std::string_view text) {
  std::int64_t count = 0;
  while (!text.empty()) {
    const std::size_t length = utf8_sequence_length(text);
    text.remove_prefix(length == 0 ? 1 : length);
    ++count;
  }
  return count;
}

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text[0]);
    if (byte < 0x20 || byte == '"' || byte == '\\') {
      append_escaped(out, byte);
      text.remove_prefix(1);
      continue;
    }
    const std::size_t length = utf8_sequence_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
      continue;
    }
    out.append(text.substr(0, length));
    text.remove_prefix(length);
  }
  out.push_back('"');
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

void append_logprob(std::string& out, float logprob) {
  if (std::isfinite(logprob)) {
    append_shortest(out, logprob);
  } else {
    out += "-9999.0";
  }
}

void append_number(std::string& out, double value) {
  append_shortest(out, std::isfinite(value) ? value : 0.0);
}

}  // namespace graft::api
