// Strict JSON for untrusted files: parses only what stays within limits of depth, values and names,
// and refuses a name that stands twice in one object (readers disagree on which one counts).
// Only readers in this folder include it. Any thread.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace graft {

struct JsonLimits {
  std::size_t max_depth = 8;
  std::size_t max_values = 16384;  // objects, arrays and scalars together
  std::size_t max_names = 4096;    // in one object
};

// Both put `what` before the reason: "adapter_config.json: ...". The ordered form keeps the order
// of names, but looks them up one by one: for small documents only.
Result<nlohmann::json> parse_strict_json(std::string_view text, const JsonLimits& limits,
                                         const std::string& what);
Result<nlohmann::ordered_json> parse_strict_ordered_json(std::string_view text,
                                                         const JsonLimits& limits,
                                                         const std::string& what);

}  // namespace graft
