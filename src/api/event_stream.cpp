#include "api/event_stream.h"

#include <utility>

#include "api/json_text.h"

namespace graft::api {

EventStream::EventStream(AnswerShape shape)
    : shape_(std::move(shape)),
      prefix_("data: " + object_prefix(shape_, true) + R"(,"choices":[)"),
      choices_(static_cast<std::size_t>(shape_.n_choices)) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].logprobs =
        CompletionLogprobs(shape_.report.tokens_as_ids, count_characters(shape_.echo_of(i)));
  }
}

void EventStream::begin_chunk(std::string& out, std::int32_t choice) const {
  out += prefix_;
  out += R"({"index":)";
  append_number(out, std::int64_t{choice});
}

void EventStream::end_chunk(std::string& out, bool with_graft, const std::string& more) const {
  out += "}]";
  if (shape_.continuous_usage) {
    out += R"(,"usage":)" + usage();
  } else if (shape_.include_usage) {
    out += R"(,"usage":null)";
  }
  if (with_graft) out += R"(,"graft":)" + shape_.graft_json;
  out += more + "}\n\n";
}

void EventStream::append_delta(std::string& out, const ChatDelta& delta) const {
  if (!shape_.chat) {
    out += R"(,"text":)";
    append_json_string(out, delta.content);
    return;
  }
  out += R"(,"delta":{)";
  if (delta.empty()) {
    out += R"("content":"")";
  } else {
    append_delta_members(out, delta);
  }
  out.push_back('}');
}

std::string EventStream::usage() const {
  std::int64_t n_tokens = 0;
  std::int64_t n_cached = 0;
  for (const Choice& choice : choices_) {
    n_tokens += choice.n_tokens;
    n_cached += choice.n_cached;
  }
  return usage_object(shape_.n_prompt_tokens, n_tokens, n_cached);
}

void EventStream::append(std::string& out, std::int32_t choice, const Started& event) {
  choices_[static_cast<std::size_t>(choice)].n_cached = event.n_cached_tokens;
  if (!shape_.chat) return append_prompt(out, choice);
  begin_chunk(out, choice);
  out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)";
  std::string prompt;
  if (shape_.report.token_ids) {
    prompt = R"(,"prompt_token_ids":)" + token_array(shape_.prompt_token_ids.front());
  }
  end_chunk(out, true, prompt);
}

// Completions begin with a chunk only when the prompt is repeated or its tokens are reported.
void EventStream::append_prompt(std::string& out, std::int32_t choice) const {
  if (!shape_.report.token_ids && shape_.echoed.empty()) return;
  begin_chunk(out, choice);
  out += R"(,"text":)" + json_string(shape_.echo_of(static_cast<std::size_t>(choice)));
  if (shape_.report.token_ids) {
    const auto prompt = static_cast<std::size_t>(choice / shape_.n_per_prompt);
    out += R"(,"prompt_token_ids":)" + token_array(shape_.prompt_token_ids[prompt]);
  }
  out += R"(,"logprobs":null,"finish_reason":null)";
  end_chunk(out, false);
}

// The text went out at the start; this is about its tokens.
void EventStream::append(std::string& out, std::int32_t choice, const PromptScored& event) {
  if (!shape_.scores_echo()) return;
  CompletionLogprobs& logprobs = choices_[static_cast<std::size_t>(choice)].logprobs;
  for (const PromptToken& token : event.tokens) logprobs.add(token, shape_.n_logprobs);
  begin_chunk(out, choice);
  out += R"(,"text":"","logprobs":)" + logprobs.take() + R"(,"finish_reason":null)";
  end_chunk(out, false);
}

void EventStream::append(std::string& out, std::int32_t choice, const TokenOutput& event,
                         const ChatDelta& delta) {
  Choice& state = choices_[static_cast<std::size_t>(choice)];
  ++state.n_tokens;
  // A token that is part of a character or of a mark has nothing to show yet.
  const bool with_token = (shape_.report.token_ids || shape_.report.tokens) && !event.ends;
  if (delta.empty() && !shape_.logprobs && !with_token) return;
  begin_chunk(out, choice);
  append_delta(out, delta);
  out += R"(,"logprobs":)";
  if (!shape_.logprobs) {
    out += "null";
  } else if (shape_.chat) {
    out += R"({"content":[)";
    append_chat_logprob(out, event, shape_.report.tokens_as_ids);
    out += R"(],"refusal":null})";
  } else {
    state.logprobs.add(event);
    out += state.logprobs.take();
  }
  if (with_token && shape_.report.token_ids) {
    out += R"(,"token_ids":)" + token_array({&event.token, 1});
  }
  if (with_token && shape_.report.tokens) {
    out += R"(,"tokens":)" + token_array({&event.token, 1});
  }
  out += R"(,"finish_reason":null)";
  end_chunk(out, false);
}

void EventStream::append(std::string& out, std::int32_t choice, const Finished& event,
                         const ChoiceEnd& end) {
  choices_[static_cast<std::size_t>(choice)].n_tokens = event.n_generated_tokens;
  choices_[static_cast<std::size_t>(choice)].n_cached = event.n_cached_tokens;
  if (!end.rest.empty()) {
    begin_chunk(out, choice);
    append_delta(out, end.rest);
    out += R"(,"logprobs":null,"finish_reason":null)";
    end_chunk(out, false);
  }
  begin_chunk(out, choice);
  out += shape_.chat ? R"(,"delta":{})" : R"(,"text":"")";
  out += R"(,"logprobs":null,"finish_reason":")";
  out += finish_reason_name(end.reason);
  out += "\"";
  append_choice_error(out, end.error);
  end_chunk(out, true, shape_.report.timings ? R"(,"timings":)" + timings_object(event) : "");
  if (++n_finished_ < shape_.n_choices) return;
  if (shape_.include_usage) {
    out += prefix_ + R"(],"usage":)" + usage();
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

void EventStream::append_error(std::string& out, const ApiError& error) {
  AnswerWriter::append_error(out, error);
  out += "data: [DONE]\n\n";
}

}  // namespace graft::api
