// Base64 (RFC 4648, with padding) and the form in which clients ask for embeddings. Pure functions,
// any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace graft::api {

void append_base64(std::string& out, std::span<const std::uint8_t> bytes);
// The values as 32-bit floats, little-endian, one after the other.
void append_base64_floats(std::string& out, std::span<const float> values);

}  // namespace graft::api
