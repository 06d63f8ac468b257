// Answers in the shape of OpenAI's /v1/responses: ResponseStream writes its events, numbered in
// order, WholeResponse the one object that clients get without streaming. Both have one choice.
// Used by one strand.
//
// Order of the events: response.created, response.in_progress; for each item output_item.added, its
// own events (of a message content_part.added, output_text.delta ..., output_text.done,
// content_part.done; of a call function_call_arguments.delta ..., .done; of reasoning
// reasoning_text.delta ..., .done), output_item.done; then response.completed, or
// response.incomplete when max_output_tokens ended the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "api/answer_shape.h"
#include "api/answer_writer.h"
#include "api/dialects.h"
#include "core/chat_message.h"
#include "core/event.h"

namespace graft::api {

// The response object, which most events repeat.
class ResponseObject {
 public:
  ResponseObject(AnswerShape shape, ResponsesEcho echo);

  // Before the answer has ended: no output, no usage.
  void append_begun(std::string& out) const;
  // `output`: the items, comma separated.
  void append_ended(std::string& out, const std::string& output, const Finished& event,
                    const std::string& error) const;
  // An answer that an error ended.
  void append_failed(std::string& out, const ApiError& error) const;

  const AnswerShape& shape() const { return shape_; }
  // Of the item at `index`; `kind` is the prefix of its type.
  std::string item_id(const char* kind, std::size_t index) const;

 private:
  void append_head(std::string& out, const char* status) const;
  void append_echo(std::string& out) const;

  const AnswerShape shape_;
  const ResponsesEcho echo_;
};

class ResponseStream : public AnswerWriter {
 public:
  ResponseStream(AnswerShape shape, ResponsesEcho echo);

  bool streams() const override { return true; }
  bool complete() const override { return complete_; }
  void append(std::string& out, std::int32_t choice, const Started& event) override;
  void append(std::string& out, std::int32_t choice, const TokenOutput& event,
              const ChatDelta& delta) override;
  void append(std::string& out, std::int32_t choice, const Finished& event,
              const ChoiceEnd& end) override;
  using AnswerWriter::append;
  void append_error(std::string& out, const ApiError& error) override;

 private:
  enum class Item { kNone, kReasoning, kMessage, kCall };

  void begin_event(std::string& out, const char* type);
  // The event's place: the open item, and its one part where it has parts.
  void append_place(std::string& out) const;
  void append_delta(std::string& out, const ChatDelta& delta, const std::string& logprobs);
  void append_text(std::string& out, const std::string& text, const std::string& logprobs);
  void append_piece(std::string& out, const char* type, const std::string& text);
  void begin_item(std::string& out, Item item);
  void end_item(std::string& out, const char* status);
  void end_text(std::string& out);
  // The open item as far as it has come.
  std::string item_json(const char* status) const;

  const ResponseObject object_;
  std::int64_t sequence_number_ = 0;
  Item item_ = Item::kNone;  // that is open
  std::size_t n_items_ = 0;  // ended
  std::string output_;       // those, comma separated
  std::string text_;         // of the open item: its text or its arguments
  ToolCall call_;            // of the open item
  std::string logprobs_;     // of the open message: elements, comma separated
  bool complete_ = false;
};

class WholeResponse : public AnswerWriter {
 public:
  WholeResponse(AnswerShape shape, ResponsesEcho echo);

  bool streams() const override { return false; }
  bool complete() const override { return complete_; }
  void append(std::string& out, std::int32_t choice, const Started& event) override;
  void append(std::string& out, std::int32_t choice, const TokenOutput& event,
              const ChatDelta& delta) override;
  void append(std::string& out, std::int32_t choice, const Finished& event,
              const ChoiceEnd& end) override;
  using AnswerWriter::append;

 private:
  const ResponseObject object_;
  ChatMessage message_;
  std::string logprobs_;  // elements, comma separated
  bool complete_ = false;
};

}  // namespace graft::api
