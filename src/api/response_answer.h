// Answers in the shape of OpenAI's /v1/responses: ResponseStream writes its events, numbered in
// order, WholeResponse the one object that clients get without streaming. Both have one choice.
// Used by one strand.
//
// Order of the events: response.created, response.in_progress; for the message output_item.added,
// content_part.added, output_text.delta ..., output_text.done, content_part.done, output_item.done;
// then response.completed, or response.incomplete when max_output_tokens ended the answer.
#pragma once

#include <cstdint>
#include <string>

#include "api/answer_shape.h"
#include "api/answer_writer.h"
#include "api/dialects.h"
#include "core/event.h"

namespace graft::api {

// The response object, which most events repeat.
class ResponseObject {
 public:
  ResponseObject(AnswerShape shape, ResponsesEcho echo);

  // Before the answer has ended: no output, no usage.
  void append_begun(std::string& out) const;
  // `output`: the items, comma separated.
  void append_ended(std::string& out, const std::string& output, const Finished& event) const;
  // An answer that an error ended.
  void append_failed(std::string& out, const ApiError& error) const;

  const AnswerShape& shape() const { return shape_; }
  const std::string& item_id() const { return item_id_; }

 private:
  void append_head(std::string& out, const char* status) const;
  void append_echo(std::string& out) const;

  const AnswerShape shape_;
  const ResponsesEcho echo_;
  const std::string item_id_;  // of the message
};

class ResponseStream : public AnswerWriter {
 public:
  ResponseStream(AnswerShape shape, ResponsesEcho echo);

  bool streams() const override { return true; }
  bool complete() const override { return complete_; }
  void append(std::string& out, std::int32_t choice, const Started& event) override;
  void append(std::string& out, std::int32_t choice, const TokenOutput& event) override;
  void append(std::string& out, std::int32_t choice, const Finished& event) override;
  void append_error(std::string& out, const ApiError& error) override;

 private:
  void begin_event(std::string& out, const char* type);
  // The event's place: of the one item and its one part.
  void append_place(std::string& out) const;
  void append_delta(std::string& out, const std::string& text, const std::string& logprobs);
  void end_item(std::string& out, const char* status);

  const ResponseObject object_;
  std::int64_t sequence_number_ = 0;
  std::string text_;
  std::string logprobs_;  // elements, comma separated
  bool in_item_ = false;
  bool complete_ = false;
};

class WholeResponse : public AnswerWriter {
 public:
  WholeResponse(AnswerShape shape, ResponsesEcho echo);

  bool streams() const override { return false; }
  bool complete() const override { return complete_; }
  void append(std::string& out, std::int32_t choice, const Started& event) override;
  void append(std::string& out, std::int32_t choice, const TokenOutput& event) override;
  void append(std::string& out, std::int32_t choice, const Finished& event) override;

 private:
  const ResponseObject object_;
  std::string text_;
  std::string logprobs_;  // elements, comma separated
  bool complete_ = false;
};

}  // namespace graft::api
