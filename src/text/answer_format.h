// AnswerFormat: what a chat template and its tools demand of the generation of one answer: the
// grammar and where it starts, stop strings, control tokens to be shown, and the syntax that parses
// the text. Plain values, made by ChatTemplate; shared by all choices of a request.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/answer_syntax.h"

namespace graft {

// Where a grammar starts in the middle of an answer.
struct GrammarTrigger {
  std::string text;         // or an ECMAScript pattern
  bool is_pattern = false;  // the grammar starts at its first group, or where the match begins
};

struct AnswerFormat {
  // GBNF with the rule "root"; empty: the answer is free.
  std::string grammar;
  // The end of the prompt, which the grammar expects before the answer's first byte. Only for a
  // grammar without triggers.
  std::string grammar_prefix;
  // Empty: the grammar holds from the first token.
  std::vector<GrammarTrigger> triggers;
  std::vector<std::string> stop_strings;
  // Texts of control tokens that are part of the answer's syntax.
  std::vector<std::string> shown_texts;
  bool short_call_ids = false;  // ids of tool calls must be nine letters and digits
  // Null: the whole text is content.
  std::shared_ptr<const AnswerSyntax> syntax;
};

}  // namespace graft
