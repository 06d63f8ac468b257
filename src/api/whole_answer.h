// WholeAnswer: collects the events of all choices of an answer and writes the one JSON object that
// clients get without streaming. Used by one strand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/answer_shape.h"
#include "api/logprobs_json.h"
#include "core/event.h"

namespace graft::api {

class WholeAnswer {
 public:
  explicit WholeAnswer(AnswerShape shape);

  void add(std::int32_t choice, const TokenOutput& event);
  void add(std::int32_t choice, const Finished& event);

  bool complete() const { return n_finished_ == shape_.n_choices; }
  // Requires: complete(). Call once.
  std::string body();

 private:
  struct Choice {
    std::string text;
    std::string chat_logprobs;  // elements, comma separated
    CompletionLogprobs logprobs;
    FinishReason reason = FinishReason::kStop;
  };

  void append_choice(std::string& out, std::size_t index);

  AnswerShape shape_;
  std::vector<Choice> choices_;
  std::int64_t n_completion_tokens_ = 0;
  std::int64_t n_cached_tokens_ = 0;
  std::int32_t n_finished_ = 0;
};

}  // namespace graft::api
