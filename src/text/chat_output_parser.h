// ChatOutputParser: the text of one answer in, ChatDeltas out, as early as they are certain.
//
// The syntax parses the text again with each piece, but not from its start: finished content and
// reasoning are cut out of what is parsed (and the cut is checked), and a long tool call is parsed
// each time it grew by a fixed part of its length. Time is therefore linear in the answer.
// One parser per choice; used by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/chat_message.h"
#include "text/answer_syntax.h"

namespace graft {

class ChatOutputParser {
 public:
  // `syntax` null: everything is content.
  explicit ChatOutputParser(std::shared_ptr<const AnswerSyntax> syntax);

  // What became certain with `text`, which holds whole characters. Nothing once failed().
  ChatDelta push(std::string_view text);
  // The rest, at the end of the answer.
  ChatDelta finish();

  bool has_tool_calls() const { return !calls_.empty(); }
  // The text cannot be parsed: it is nested too deep, or, after finish(), a call is broken.
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

 private:
  // What was handed out of one tool call.
  struct Call {
    std::string name;
    std::size_t n_arguments = 0;
  };

  ChatDelta parse(bool is_whole);
  ChatDelta difference(const ChatMessage& message, bool is_last);
  void add_call(const ToolCall& call, std::size_t index, bool is_last, ChatDelta& delta);
  ChatDelta end_unparsed(const std::string& reason);
  bool cut(const ChatMessage& message);
  bool cut_field(const ChatMessage& message, std::string ChatMessage::*field);

  const std::shared_ptr<const AnswerSyntax> syntax_;
  std::string text_;          // the answer, without what was cut
  std::size_t n_parsed_ = 0;  // bytes of text_ at the last parse
  int depth_ = 0;             // brackets open at the end of text_
  // Bytes of the message parsed from text_ that were handed out.
  std::size_t n_reasoning_ = 0;
  std::size_t n_content_ = 0;
  std::size_t n_next_cut_;  // content or reasoning of this size is worth cutting
  std::vector<Call> calls_;
  ChatMessage last_;  // parsed from text_ when it last could be
  std::string error_;
};

}  // namespace graft
