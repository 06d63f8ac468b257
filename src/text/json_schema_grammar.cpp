// llama.cpp's converter and JSON throw; all of it runs inside one try.
#include "text/json_schema_grammar.h"

#include <json-schema-to-grammar.h>
#include <json.h>

#include <exception>
#include <string_view>
#include <utility>

#include "text/gbnf.h"
#include "text/json_nesting.h"
#include "text/schema_rewriter.h"

namespace graft {
namespace {

// Each constant that stands for something (see RewrittenSchema) becomes the name of its rule.
std::string with_rules(const std::string& gbnf, const RewrittenSchema& rewritten,
                       const std::vector<std::string>& definition_rules) {
  const std::string begin = R"("\")" + rewritten.mark;
  const std::string_view end = R"(\"")";
  std::string result;
  std::size_t copied = 0;
  for (std::size_t at = gbnf.find(begin); at != std::string::npos; at = gbnf.find(begin, copied)) {
    result.append(gbnf, copied, at - copied);
    const std::size_t number = at + begin.size();
    const std::size_t letter = gbnf.find_first_of("rp", number);
    const std::size_t index = std::stoul(gbnf.substr(number, letter - number));
    result += gbnf[letter] == 'r' ? definition_rules.at(index)
                                  : rewritten.mark + std::to_string(index) + "p";
    copied = letter + 1 + end.size();
  }
  result.append(gbnf, copied);
  for (const std::string& rule : rewritten.pattern_rules) result += rule;
  return result;
}

Result<SchemaGrammar> convert(const std::string& schema_json, bool lenient) {
  const common_json schema = common_json::parse_no_throw(schema_json);
  if (schema.is_discarded()) return invalid_argument("the JSON schema is not valid JSON");
  GRAFT_ASSIGN_OR_RETURN(RewrittenSchema rewritten, SchemaRewriter(schema, lenient).run());
  std::vector<std::string> rules;
  const std::string gbnf = build_grammar([&](const common_grammar_builder& builder) {
    for (std::size_t i = 0; i < rewritten.definitions.size(); ++i) {
      const auto document = common_chat_schema_from_json(rewritten.definitions[i]);
      rules.push_back(builder.add_schema(rewritten.mark + std::to_string(i) + "r", *document.root));
    }
    builder.add_rule("root", rules.front());
  });
  return SchemaGrammar{with_rules(gbnf, rewritten, rules), std::move(rewritten.ignored_keywords)};
}

}  // namespace

Result<SchemaGrammar> json_schema_to_gbnf(const std::string& schema_json, bool lenient) {
  if (is_nested_deeper(schema_json, kMaxConstraintDepth)) {
    return invalid_argument("the JSON schema is nested deeper than " +
                            std::to_string(kMaxConstraintDepth) + " levels");
  }
  try {
    return convert(schema_json, lenient);
  } catch (const std::exception& e) {
    return invalid_argument(std::string("the JSON schema cannot be converted: ") + e.what());
  }
}

}  // namespace graft
