// ConstraintSource: what a request says its answer must look like, not yet checked. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/request.h"

namespace graft {

struct ConstraintSource {
  enum class Kind : std::uint8_t {
    kJsonSchema,  // text: the schema as JSON
    kJsonObject,  // any JSON object; no text
    kGrammar,     // text: GBNF (see gbnf.h), root rule "root"
    kRegex,       // text: matches the whole answer (see regex_grammar.h)
    kChoice,      // choices: the answer is one of them
  };
  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};
  // Schema keywords that cannot be enforced are reported as ignored instead of refused.
  bool lenient = false;
  // Control tokens that may stand for their own text. All others never fit, since what they stand
  // for is not part of the answer.
  std::vector<TokenId> control_tokens = {};

  bool operator==(const ConstraintSource&) const = default;
};

}  // namespace graft
