#include "api/event_stream.h"

#include <utility>

#include "api/json_text.h"

namespace graft::api {

EventStream::EventStream(AnswerShape shape)
    : shape_(std::move(shape)),
      prefix_("data: " + object_prefix(shape_, true) + R"(,"choices":[)"),
      choices_(static_cast<std::size_t>(shape_.n_choices)) {}

void EventStream::begin_chunk(std::string& out, std::int32_t choice) const {
  out += prefix_;
  out += R"({"index":)";
  append_number(out, std::int64_t{choice});
}

void EventStream::end_chunk(std::string& out, bool with_graft) const {
  out += "}]";
  if (shape_.continuous_usage) {
    out += R"(,"usage":)" + usage();
  } else if (shape_.include_usage) {
    out += R"(,"usage":null)";
  }
  if (with_graft) out += R"(,"graft":)" + shape_.graft_json;
  out += "}\n\n";
}

void EventStream::append_text(std::string& out, const std::string& text) const {
  out += shape_.chat ? R"(,"delta":{"content":)" : R"(,"text":)";
  append_json_string(out, text);
  if (shape_.chat) out.push_back('}');
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
  if (!shape_.chat) return;
  begin_chunk(out, choice);
  out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)";
  end_chunk(out, true);
}

void EventStream::append(std::string& out, std::int32_t choice, const TokenOutput& event) {
  Choice& state = choices_[static_cast<std::size_t>(choice)];
  ++state.n_tokens;
  // A token that is part of a character has nothing to show yet.
  if (event.text.empty() && !shape_.logprobs) return;
  begin_chunk(out, choice);
  append_text(out, event.text);
  out += R"(,"logprobs":)";
  if (!shape_.logprobs) {
    out += "null";
  } else if (shape_.chat) {
    out += R"({"content":[)";
    append_chat_logprob(out, event);
    out += R"(],"refusal":null})";
  } else {
    state.logprobs.add(event);
    out += state.logprobs.take();
  }
  out += R"(,"finish_reason":null)";
  end_chunk(out, false);
}

void EventStream::append(std::string& out, std::int32_t choice, const Finished& event) {
  choices_[static_cast<std::size_t>(choice)].n_tokens = event.n_generated_tokens;
  choices_[static_cast<std::size_t>(choice)].n_cached = event.n_cached_tokens;
  if (!event.text.empty()) {
    begin_chunk(out, choice);
    append_text(out, event.text);
    out += R"(,"logprobs":null,"finish_reason":null)";
    end_chunk(out, false);
  }
  begin_chunk(out, choice);
  out += shape_.chat ? R"(,"delta":{})" : R"(,"text":"")";
  out += R"(,"logprobs":null,"finish_reason":")";
  out += finish_reason_name(event.reason);
  out += "\"";
  end_chunk(out, true);
  if (++n_finished_ < shape_.n_choices) return;
  if (shape_.include_usage) {
    out += prefix_ + R"(],"usage":)" + usage();
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

void EventStream::append_error(std::string& out, const ApiError& error) {
  out += "data: " + error_body(error) + "\n\ndata: [DONE]\n\n";
}

}  // namespace graft::api
