// ChoiceOutput: the events of one choice -> what its message grows by. Parses reasoning and tool
// calls where the chat has a format for them, and makes the ids of calls. Used by one strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/chat_message.h"
#include "core/event.h"
#include "text/answer_format.h"
#include "text/chat_output_parser.h"

namespace graft::api {

using MakeCallId = std::function<std::string()>;

// How a choice ended, as clients see it.
struct ChoiceEnd {
  ChatDelta rest;  // what was held back
  FinishReason reason = FinishReason::kStop;
  std::string error;  // the text could not be parsed to its end, or ""
};

class ChoiceOutput {
 public:
  // `format` null: all text is content. The text is parsed once `piece_bytes` of it are there.
  ChoiceOutput(const std::shared_ptr<const AnswerFormat>& format, MakeCallId make_call_id,
               std::size_t piece_bytes);

  ChatDelta take(const TokenOutput& event);
  ChoiceEnd finish(const Finished& event);

  // The text cannot be parsed any further: the choice ends here, with finish(ended_early()).
  bool must_end() const { return parser_.failed(); }
  // What the engine would say if the answer had ended by itself now.
  Finished ended_early() const;

 private:
  ChatDelta with_ids(ChatDelta delta) const;

  ChatOutputParser parser_;
  MakeCallId make_call_id_;
  std::size_t piece_bytes_;
  std::string pending_;  // shorter than piece_bytes_
  std::int32_t n_tokens_ = 0;
};

}  // namespace graft::api
