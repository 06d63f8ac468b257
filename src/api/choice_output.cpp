#include "api/choice_output.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace graft::api {

ChoiceOutput::ChoiceOutput(const std::shared_ptr<const AnswerFormat>& format,
                           MakeCallId make_call_id, std::size_t piece_bytes)
    : parser_(format == nullptr ? nullptr : format->syntax),
      make_call_id_(std::move(make_call_id)),
      piece_bytes_(format == nullptr ? 0 : piece_bytes) {}

ChatDelta ChoiceOutput::take(const TokenOutput& event) {
  ++n_tokens_;
  pending_ += event.text;
  if (pending_.size() < piece_bytes_) return {};
  return with_ids(parser_.push(std::exchange(pending_, {})));
}

ChoiceEnd ChoiceOutput::finish(const Finished& event) {
  ChoiceEnd end;
  end.rest = with_ids(parser_.push(std::exchange(pending_, {}) + event.text));
  ChatDelta last = with_ids(parser_.finish());
  std::move(last.tool_calls.begin(), last.tool_calls.end(),
            std::back_inserter(end.rest.tool_calls));
  end.rest.reasoning += last.reasoning;
  end.rest.content += last.content;
  end.error = parser_.error();
  const bool calls = parser_.has_tool_calls() && event.reason == FinishReason::kStop;
  end.reason = calls && end.error.empty() ? FinishReason::kToolCalls : event.reason;
  return end;
}

Finished ChoiceOutput::ended_early() const {
  Finished event;
  event.n_generated_tokens = n_tokens_;
  return event;
}

ChatDelta ChoiceOutput::with_ids(ChatDelta delta) const {
  for (ToolCallDelta& step : delta.tool_calls) {
    if (step.is_first) step.call.id = make_call_id_();
  }
  return delta;
}

}  // namespace graft::api
