// Request bodies as JSON, under limits: nesting depth, no U+0000, valid UTF-8, finite numbers.
// Pure functions over hostile bytes; any thread. Only files in api/ include this.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace graft::api {

using Json = nlohmann::json;

constexpr int kMaxJsonDepth = 64;
constexpr int kMaxJsonValues = 1 << 20;  // a parsed value takes some ten times its bytes

// The body as a JSON object. Errors: kInvalidArgument saying what is wrong and where.
Result<Json> parse_request_json(std::string_view body);
// The body as a JSON array, under the same limits.
Result<Json> parse_request_array(std::string_view body);

}  // namespace graft::api
