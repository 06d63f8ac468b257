// AnswerSyntax: how a model writes its answer: where reasoning, content and tool calls stand in
// the text. Immutable and shared by all choices of a request; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "core/chat_message.h"

namespace graft {

// Parsers of nested text recurse. A text with more brackets open than this is never given to one.
inline constexpr int kMaxOutputBrackets = 256;

class AnswerSyntax {
 public:
  virtual ~AnswerSyntax() = default;

  // The message that `text`, an answer from its first byte, holds. With `is_whole` false more text
  // may follow, and what could become the start of a marker is left out; a longer text then gives
  // a message that begins with this one. An answer may also end in the middle of a tool call. An
  // error: the text does not follow the syntax. Requires, if nests(): at most kMaxOutputBrackets
  // brackets are open anywhere in `text`.
  virtual Result<ChatMessage> parse(std::string_view text, bool is_whole) const = 0;

  // Whether nested values are parsed: those of tool calls.
  virtual bool nests() const = 0;

  // Whether a tool of this name was declared.
  virtual bool has_tool(std::string_view name) const = 0;
  // Whether another declared name begins with `name`.
  virtual bool begins_longer_tool(std::string_view name) const = 0;
};

}  // namespace graft
