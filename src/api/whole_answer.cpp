#include "api/whole_answer.h"

#include <utility>

#include "api/json_text.h"

namespace graft::api {

WholeAnswer::WholeAnswer(AnswerShape shape)
    : shape_(std::move(shape)), choices_(static_cast<std::size_t>(shape_.n_choices)) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].message.content = shape_.echo_of(i);
    choices_[i].logprobs = CompletionLogprobs(shape_.report.tokens_as_ids,
                                              count_characters(choices_[i].message.content));
  }
}

void WholeAnswer::append(std::string&, std::int32_t, const Started&) {}

void WholeAnswer::append(std::string&, std::int32_t choice, const PromptScored& event) {
  Choice& state = choices_[static_cast<std::size_t>(choice)];
  for (const PromptToken& token : event.tokens) {
    if (shape_.scores_echo()) state.logprobs.add(token, shape_.n_logprobs);
    if (!shape_.n_prompt_logprobs) continue;
    if (!state.prompt_logprobs.empty()) state.prompt_logprobs.push_back(',');
    append_prompt_logprob(state.prompt_logprobs, token, *shape_.n_prompt_logprobs);
  }
}

void WholeAnswer::append(std::string&, std::int32_t choice, const TokenOutput& event,
                         const ChatDelta& delta) {
  Choice& state = choices_[static_cast<std::size_t>(choice)];
  graft::append(state.message, delta);
  const bool with_token = shape_.report.token_ids || shape_.report.tokens;
  if (with_token && !event.ends) state.tokens.push_back(event.token);
  if (!shape_.logprobs) return;
  if (shape_.chat) {
    if (!state.chat_logprobs.empty()) state.chat_logprobs.push_back(',');
    append_chat_logprob(state.chat_logprobs, event, shape_.report.tokens_as_ids);
  } else {
    state.logprobs.add(event);
  }
}

void WholeAnswer::append(std::string& out, std::int32_t choice, const Finished& event,
                         const ChoiceEnd& end) {
  Choice& state = choices_[static_cast<std::size_t>(choice)];
  graft::append(state.message, end.rest);
  state.reason = end.reason;
  state.error = end.error;
  n_completion_tokens_ += event.n_generated_tokens;
  n_cached_tokens_ += event.n_cached_tokens;
  if (shape_.report.timings) timings_ = timings_object(event);
  ++n_finished_;
  if (complete()) append_body(out);
}

void WholeAnswer::append_message(std::string& out, const ChatMessage& message) {
  out += R"(,"message":{"role":"assistant","content":)";
  if (message.content.empty() && !message.tool_calls.empty()) {
    out += "null";
  } else {
    append_json_string(out, message.content);
  }
  if (!message.reasoning.empty()) {
    out += R"(,"reasoning_content":)";
    append_json_string(out, message.reasoning);
  }
  for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
    const ToolCall& call = message.tool_calls[i];
    out += i == 0 ? R"(,"tool_calls":[{"id":)" : R"(,{"id":)";
    append_json_string(out, call.id);
    out += R"(,"type":"function","function":{"name":)";
    append_json_string(out, call.name);
    out += R"(,"arguments":)";
    append_json_string(out, call.arguments);
    out += "}}";
  }
  out += message.tool_calls.empty() ? R"(,"refusal":null})" : R"(],"refusal":null})";
}

void WholeAnswer::append_choice(std::string& out, std::size_t index) {
  Choice& state = choices_[index];
  out += R"({"index":)" + std::to_string(index);
  if (shape_.chat) {
    append_message(out, state.message);
  } else {
    out += R"(,"text":)";
    append_json_string(out, state.message.content);
  }
  out += R"(,"logprobs":)";
  if (!shape_.logprobs) {
    out += "null";
  } else if (shape_.chat) {
    out += R"({"content":[)" + state.chat_logprobs + R"(],"refusal":null})";
  } else {
    out += state.logprobs.take();
  }
  out += R"(,"finish_reason":")";
  out += finish_reason_name(state.reason);
  out += "\"";
  append_choice_error(out, state.error);
  append_tokens(out, index);
  if (!shape_.chat && shape_.n_prompt_logprobs) {
    out += R"(,"prompt_logprobs":[)" + state.prompt_logprobs + "]";
  }
  out += "}";
}

void WholeAnswer::append_tokens(std::string& out, std::size_t index) const {
  const Choice& state = choices_[index];
  if (shape_.report.tokens) out += R"(,"tokens":)" + token_array(state.tokens);
  if (!shape_.report.token_ids) return;
  out += R"(,"token_ids":)" + token_array(state.tokens);
  if (shape_.chat) return;  // one prompt: it stands beside the choices
  const auto prompt = index / static_cast<std::size_t>(shape_.n_per_prompt);
  out += R"(,"prompt_token_ids":)" + token_array(shape_.prompt_token_ids[prompt]);
}

void WholeAnswer::append_body(std::string& out) {
  out += object_prefix(shape_, false) + R"(,"choices":[)";
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_choice(out, i);
  }
  out += R"(],"usage":)" +
         usage_object(shape_.n_prompt_tokens, n_completion_tokens_, n_cached_tokens_);
  if (shape_.report.timings) out += R"(,"timings":)" + timings_;
  if (shape_.chat && shape_.report.token_ids) {
    out += R"(,"prompt_token_ids":)" + token_array(shape_.prompt_token_ids.front());
  }
  if (shape_.chat && shape_.n_prompt_logprobs) {  // one prompt: each choice has the same
    out += R"(,"prompt_logprobs":[)" + choices_.front().prompt_logprobs + "]";
  }
  out += R"(,"graft":)" + shape_.graft_json + "}";
}

}  // namespace graft::api
