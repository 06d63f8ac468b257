// Answers in Anthropic's shape, for /v1/messages: MessageStream writes its events, WholeMessage the
// one object that clients get without streaming. Both have one choice. Used by one strand.
//
// Order of the events: message_start; content_block_start, content_block_delta ...,
// content_block_stop for each block; message_delta with the reason of the end; message_stop. Blocks
// are of thinking, text or one tool call each. A block begins with its first character, so an empty
// answer has none.
#pragma once

#include <cstdint>
#include <string>

#include "api/answer_shape.h"
#include "api/answer_writer.h"
#include "core/chat_message.h"
#include "core/event.h"

namespace graft::api {

// {"type":"error","error":{"type","message", ...},"request_id"}: an error as Anthropic's clients
// read it, made of one in our own shape (see errors.h), whose other keys stay.
std::string message_error_body(const std::string& body, int status, const std::string& request_id);

class MessageStream : public AnswerWriter {
 public:
  MessageStream(AnswerShape shape, std::string request_id);

  bool streams() const override { return true; }
  bool complete() const override { return complete_; }
  void append(std::string& out, std::int32_t choice, const Started& event) override;
  void append(std::string& out, std::int32_t choice, const TokenOutput& event,
              const ChatDelta& delta) override;
  void append(std::string& out, std::int32_t choice, const Finished& event,
              const ChoiceEnd& end) override;
  using AnswerWriter::append;
  HttpResponse error_answer(const ApiError& error) const override;
  void append_error(std::string& out, const ApiError& error) override;
  void append_ping(std::string& out) override;

 private:
  enum class Block { kNone, kThinking, kText, kTool };

  void append_delta(std::string& out, const ChatDelta& delta);
  void append_piece(std::string& out, const char* type, const char* member,
                    const std::string& text) const;
  // `start`: the block as it begins. A block of this kind goes on, unless it is a tool's.
  void enter(std::string& out, Block block, const std::string& start);
  void leave(std::string& out);

  const AnswerShape shape_;
  const std::string request_id_;
  Block block_ = Block::kNone;  // that is open
  std::int64_t n_blocks_ = 0;   // begun
  bool complete_ = false;
};

class WholeMessage : public AnswerWriter {
 public:
  WholeMessage(AnswerShape shape, std::string request_id);

  bool streams() const override { return false; }
  bool complete() const override { return complete_; }
  void append(std::string& out, std::int32_t choice, const Started& event) override;
  void append(std::string& out, std::int32_t choice, const TokenOutput& event,
              const ChatDelta& delta) override;
  void append(std::string& out, std::int32_t choice, const Finished& event,
              const ChoiceEnd& end) override;
  using AnswerWriter::append;
  HttpResponse error_answer(const ApiError& error) const override;

 private:
  const AnswerShape shape_;
  const std::string request_id_;
  ChatMessage message_;
  bool complete_ = false;
};

}  // namespace graft::api
