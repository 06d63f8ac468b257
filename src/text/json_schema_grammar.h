// json_schema_to_gbnf: a JSON schema -> a GBNF grammar of the JSON texts that satisfy it. The
// schema is checked and rewritten by schema_rewriter.h, and what that leaves is converted by
// llama.cpp. Reads untrusted text under limits; pure function, any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace graft {

struct SchemaGrammar {
  std::string gbnf;
  std::vector<std::string> ignored_keywords;  // each with its place in the schema
};

// kInvalidArgument: not a valid schema, or over a limit. kNotSupported names the keyword that
// cannot be enforced; with `lenient` such keywords are left out and listed, as far as that is
// possible. Requires: schema_json is UTF-8, at most kMaxConstraintBytes.
Result<SchemaGrammar> json_schema_to_gbnf(const std::string& schema_json, bool lenient);

}  // namespace graft
