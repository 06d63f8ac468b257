// EventStream: the events of one answer as server-sent events, chunk by chunk. Used by one strand.
//
// Order per choice: the role chunk (chat), text chunks, one chunk with finish_reason. Behind the
// last choice: the usage chunk if asked for, then [DONE]. The chunks with the role and with
// finish_reason carry the `graft` object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/answer_shape.h"
#include "api/answer_writer.h"
#include "api/logprobs_json.h"
#include "core/event.h"

namespace graft::api {

class EventStream : public AnswerWriter {
 public:
  explicit EventStream(AnswerShape shape);

  bool streams() const override { return true; }
  bool complete() const override { return n_finished_ == shape_.n_choices; }

  void append(std::string& out, std::int32_t choice, const Started& event) override;
  void append(std::string& out, std::int32_t choice, const PromptScored& event) override;
  void append(std::string& out, std::int32_t choice, const TokenOutput& event,
              const ChatDelta& delta) override;
  // After the last choice this also writes usage and [DONE].
  void append(std::string& out, std::int32_t choice, const Finished& event,
              const ChoiceEnd& end) override;
  using AnswerWriter::append;
  // The error, then [DONE].
  void append_error(std::string& out, const ApiError& error) override;

 private:
  struct Choice {
    CompletionLogprobs logprobs;
    std::int64_t n_tokens = 0;
    std::int64_t n_cached = 0;  // of its prompt
  };

  void begin_chunk(std::string& out, std::int32_t choice) const;
  // `more`: further members of the chunk.
  void end_chunk(std::string& out, bool with_graft, const std::string& more = {}) const;
  void append_prompt(std::string& out, std::int32_t choice) const;
  void append_delta(std::string& out, const ChatDelta& delta) const;
  std::string usage() const;

  AnswerShape shape_;
  std::string prefix_;
  std::vector<Choice> choices_;
  std::int32_t n_finished_ = 0;
};

}  // namespace graft::api
