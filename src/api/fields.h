// The field table of the generation endpoints: every request field we know, its type and range, and
// whether it is honoured, ignored, or only accepted at the value that changes nothing. One table
// for validation and, later, for the API description. Unknown keys are ignored.
#pragma once

#include <span>
#include <string_view>

#include "api/request_json.h"
#include "base/result.h"

namespace graft::api {

enum class Endpoint : unsigned { kChat = 1, kCompletions = 2, kBoth = 3 };

enum class FieldType {
  kBool,
  kInteger,
  kNumber,
  kString,
  kObject,
  kArray,
  kStringOrArray,
  kBoolOrInteger,  // `logprobs` is a boolean for chat and a count for completions
  kAny,
};

enum class FieldUse {
  kHonoured,
  kIgnored,      // valid, without effect on the answer
  kNeutralOnly,  // not supported yet: null, false, empty or `neutral` pass, the rest is an error
};

struct Field {
  std::string_view name;
  Endpoint where;
  FieldType type;
  FieldUse use;
  double min = 0;  // numbers only, inclusive
  double max = 0;
  double neutral = 0;
};

std::span<const Field> generation_fields();

// Checks every known field of `body` that belongs to `endpoint`. Null counts as absent.
Status check_fields(const Json& body, Endpoint endpoint);

// The field's value, or null when it is absent or JSON null.
const Json* find_field(const Json& body, const char* name);

}  // namespace graft::api
