// Response heads and chunk frames as bytes. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "api/exchange.h"

namespace graft {

enum class BodyFraming { kLength, kChunked, kUntilClose };

// Status line and headers, with the empty line that ends them.
std::string response_head(const api::HttpResponse& response, BodyFraming framing, bool keep_alive);

// `bytes` as one chunk of a chunked body. Requires: not empty.
void append_chunk(std::string& out, const std::string& bytes);
inline constexpr const char* kLastChunk = "0\r\n\r\n";

}  // namespace graft
