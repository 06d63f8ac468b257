// The field tables: every request field we know, the endpoints it belongs to, its type and range,
// and whether it is honoured, ignored, or only accepted at the value that changes nothing. They
// serve validation and /openapi.json alike. Unknown keys are ignored. Constant; any thread.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "api/request_json.h"
#include "base/result.h"

namespace graft::api {

// The kinds of request bodies; a set of bits.
enum class Endpoint : unsigned {
  kNone = 0,
  kChat = 1,
  kCompletions = 2,
  kBoth = kChat | kCompletions,
  kMessages = 4,
  kCountTokens = 8,
  kResponses = 16,
  kTokenize = 32,
  kDetokenize = 64,
  kEmbeddings = 128,
};

constexpr Endpoint operator|(Endpoint a, Endpoint b) {
  return static_cast<Endpoint>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool overlap(Endpoint a, Endpoint b) {
  return (static_cast<unsigned>(a) & static_cast<unsigned>(b)) != 0;
}

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

std::span<const Field> generation_fields();  // of chat and completions: fields.cpp
std::span<const Field> dialect_fields();     // of all others: dialect_fields.cpp
// Those of one endpoint.
std::vector<Field> fields_of(Endpoint endpoint);

// Checks every known field of `body` that belongs to `endpoint`. Null counts as absent.
// Requires: one endpoint.
Status check_fields(const Json& body, Endpoint endpoint);

// The field's value, or null when it is absent or JSON null.
const Json* find_field(const Json& body, const char* name);

// "'param' must be expected."
Error must_be(const std::string& param, const std::string& expected);
// "list[index]"
std::string element(const std::string& list, std::size_t index);

}  // namespace graft::api
