// What secrets need of the cryptographic library (OpenSSL): randomness, and comparing in a time
// that tells nothing. Pure but for the system's random source; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace graft {

// `n_bytes` from the system's random source as lower-case hexadecimal digits.
std::string random_hex(std::size_t n_bytes);

// 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view text);

// The time depends on the sizes alone, never on where the two differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace graft
