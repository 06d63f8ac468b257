// Writing JSON as text, for what is sent often: numbers and strings appended to a buffer. Strings
// are made valid: bytes that are not UTF-8 become U+FFFD. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace graft::api {

// Appends `text` as a JSON string, quotes included.
void append_json_string(std::string& out, std::string_view text);
std::string json_string(std::string_view text);

// A finite number as JSON; log-probabilities that are not finite become -9999.
void append_logprob(std::string& out, float logprob);
void append_number(std::string& out, double value);
inline void append_number(std::string& out, std::int64_t value) { out += std::to_string(value); }

// Length of the valid UTF-8 sequence at the start of `text`, 1 to 4; 0 when there is none.
std::size_t utf8_sequence_length(std::string_view text);
bool is_valid_utf8(std::string_view text);
// Number of characters, a broken byte counting as one.
std::int64_t count_characters(std::string_view text);

}  // namespace graft::api
