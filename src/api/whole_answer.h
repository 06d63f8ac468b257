// WholeAnswer: collects the events of all choices of an answer and writes the one JSON object that
// clients get without streaming. Used by one strand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/answer_shape.h"
#include "api/answer_writer.h"
#include "api/logprobs_json.h"
#include "core/event.h"

namespace graft::api {

class WholeAnswer : public AnswerWriter {
 public:
  explicit WholeAnswer(AnswerShape shape);

  bool streams() const override { return false; }
  bool complete() const override { return n_finished_ == shape_.n_choices; }

  void append(std::string& out, std::int32_t choice, const Started& event) override;
  void append(std::string& out, std::int32_t choice, const PromptScored& event) override;
  void append(std::string& out, std::int32_t choice, const TokenOutput& event,
              const ChatDelta& delta) override;
  void append(std::string& out, std::int32_t choice, const Finished& event,
              const ChoiceEnd& end) override;
  using AnswerWriter::append;

 private:
  struct Choice {
    ChatMessage message;
    std::string error;          // the text could not be parsed to its end
    std::string chat_logprobs;  // elements, comma separated
    CompletionLogprobs logprobs;
    std::string prompt_logprobs;  // elements, comma separated
    std::vector<TokenId> tokens;  // only if they are reported
    FinishReason reason = FinishReason::kStop;
  };

  void append_choice(std::string& out, std::size_t index);
  static void append_message(std::string& out, const ChatMessage& message);
  void append_body(std::string& out);

  void append_tokens(std::string& out, std::size_t index) const;

  AnswerShape shape_;
  std::string timings_;  // of the choice that ended last
  std::vector<Choice> choices_;
  std::int64_t n_completion_tokens_ = 0;
  std::int64_t n_cached_tokens_ = 0;
  std::int32_t n_finished_ = 0;
};

}  // namespace graft::api
