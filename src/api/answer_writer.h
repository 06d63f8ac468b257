// AnswerWriter: turns the events of one answer into bytes. There is one subclass for each shape of
// answer that clients know, so one GenerationExchange serves them all. Used by one strand.
//
// A writer that streams appends the next piece of a stream of server-sent events in every call.
// The others append nothing until the last choice has ended, and then the whole JSON body.
#pragma once

#include <cstdint>
#include <string>

#include "api/choice_output.h"
#include "api/errors.h"
#include "core/event.h"

namespace graft::api {

class AnswerWriter {
 public:
  AnswerWriter() = default;
  virtual ~AnswerWriter() = default;
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;

  virtual bool streams() const = 0;
  // Every choice has ended, and what belongs to the answer is written.
  virtual bool complete() const = 0;

  virtual void append(std::string& out, std::int32_t choice, const Started& event) = 0;
  // Only in answers that report on their prompt.
  virtual void append(std::string& /*out*/, std::int32_t /*choice*/,
                      const PromptScored& /*event*/) {}
  // `delta`: what the message grew by. `end`: what it grew by at last, and how it ended.
  virtual void append(std::string& out, std::int32_t choice, const TokenOutput& event,
                      const ChatDelta& delta) = 0;
  virtual void append(std::string& out, std::int32_t choice, const Finished& event,
                      const ChoiceEnd& end) = 0;

  // The same where all text is content.
  void append(std::string& out, std::int32_t choice, const TokenOutput& event) {
    append(out, choice, event, ChatDelta{.reasoning = {}, .content = event.text, .tool_calls = {}});
  }
  void append(std::string& out, std::int32_t choice, const Finished& event) {
    ChoiceEnd end;
    end.rest.content = event.text;
    end.reason = event.reason;
    append(out, choice, event, end);
  }

  // The answer when all fails before its first byte.
  virtual HttpResponse error_answer(const ApiError& error) const { return error_response(error); }

  // For writers that stream. An error event, behind which nothing comes; and what an idle client
  // hears.
  virtual void append_error(std::string& out, const ApiError& error) {
    out += "data: " + error_body(error) + "\n\n";
  }
  virtual void append_ping(std::string& out) { out += ": waiting\n\n"; }
};

}  // namespace graft::api
