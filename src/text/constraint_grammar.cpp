#include "text/constraint_grammar.h"

#include <set>
#include <utility>

#include "text/gbnf.h"
#include "text/json_schema_grammar.h"
#include "text/regex_grammar.h"
#include "text/utf8.h"

namespace graft {
namespace {

// Of grammars that we write: longer and deeper than what they are made from.
constexpr GbnfLimits kGeneratedLimits = {.max_bytes = std::size_t{4} << 20, .max_depth = 512};

Status check_text(const std::string& text, const char* what) {
  if (text.size() > kMaxConstraintBytes) {
    return invalid_argument(std::string(what) + " has " + std::to_string(text.size()) +
                            " bytes; the limit is " + std::to_string(kMaxConstraintBytes));
  }
  if (text.find('\0') != std::string::npos) {
    return invalid_argument(std::string(what) + " holds the character U+0000");
  }
  for (std::size_t at = 0; at < text.size();) {
    const auto code = decode_utf8(text, at);
    if (!code) return invalid_argument(std::string(what) + " is not UTF-8");
    at += code->n_bytes;
  }
  return {};
}

Result<std::string> choices_to_gbnf(const std::vector<std::string>& choices) {
  if (choices.empty()) return invalid_argument("there are no choices");
  if (choices.size() > kMaxChoices) {
    return invalid_argument("there are " + std::to_string(choices.size()) +
                            " choices; the limit is " + std::to_string(kMaxChoices));
  }
  std::size_t n_bytes = 0;
  std::string rule = "root ::= ";
  for (const std::string& choice : std::set<std::string>(choices.begin(), choices.end())) {
    if (choice.empty()) return invalid_argument("a choice is empty");
    GRAFT_RETURN_IF_ERROR(check_text(choice, "a choice"));
    n_bytes += choice.size();
    if (n_bytes > kMaxConstraintBytes) {
      return invalid_argument("the choices have more than " + std::to_string(kMaxConstraintBytes) +
                              " bytes together");
    }
    if (rule.back() == '"') rule += " | ";
    rule += gbnf_literal(choice);
  }
  return rule;
}

}  // namespace

Result<ConstraintGrammar> make_constraint_grammar(const ConstraintSource& source,
                                                  const Vocabulary& vocabulary) {
  using Kind = ConstraintSource::Kind;
  ConstraintGrammar grammar;
  std::string gbnf;
  GbnfLimits limits = kGeneratedLimits;
  if (source.kind == Kind::kGrammar) {
    GRAFT_RETURN_IF_ERROR(check_text(source.text, "the grammar"));
    gbnf = source.text;
    limits = {};
  } else if (source.kind == Kind::kRegex) {
    GRAFT_RETURN_IF_ERROR(check_text(source.text, "the regular expression"));
    GRAFT_ASSIGN_OR_RETURN(gbnf, regex_to_gbnf(source.text, RegexUse::kWholeAnswer, "root"));
  } else if (source.kind == Kind::kChoice) {
    GRAFT_ASSIGN_OR_RETURN(gbnf, choices_to_gbnf(source.choices));
  } else {
    const bool any = source.kind == Kind::kJsonObject;
    if (!any) GRAFT_RETURN_IF_ERROR(check_text(source.text, "the JSON schema"));
    GRAFT_ASSIGN_OR_RETURN(
        SchemaGrammar made,
        json_schema_to_gbnf(any ? R"({"type":"object"})" : source.text, source.lenient));
    gbnf = std::move(made.gbnf);
    grammar.ignored_keywords = std::move(made.ignored_keywords);
  }
  GRAFT_ASSIGN_OR_RETURN(grammar.rules, parse_gbnf(gbnf, vocabulary, limits));
  return grammar;
}

}  // namespace graft
