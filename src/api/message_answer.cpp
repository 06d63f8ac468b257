#include "api/message_answer.h"

#include <utility>

#include "api/json_text.h"
#include "api/request_json.h"

namespace graft::api {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 400:
    case 405:
    case 415: return "invalid_request_error";
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return "api_error";
  }
}

void begin_event(std::string& out, const char* type) {
  out += std::string("event: ") + type + "\ndata: {\"type\":\"" + type + "\"";
}

void end_event(std::string& out) { out += "}\n\n"; }

// "stop_reason":...,"stop_sequence":...
void append_reason(std::string& out, const Finished& event, const ChoiceEnd& end) {
  out += R"("stop_reason":")";
  if (end.reason == FinishReason::kToolCalls) {
    out += R"(tool_use","stop_sequence":null)";
  } else if (event.reason == FinishReason::kLength) {
    out += R"(max_tokens","stop_sequence":null)";
  } else if (event.stop_string.empty()) {
    out += R"(end_turn","stop_sequence":null)";
  } else {
    out += R"(stop_sequence","stop_sequence":)" + json_string(event.stop_string);
  }
}

// {"type":"tool_use",... without closing brace.
std::string begin_tool_use(const ToolCall& call) {
  return R"({"type":"tool_use","id":)" + json_string(call.id) + R"(,"name":)" +
         json_string(call.name);
}

// Arguments as the object that clients expect; those of a call that was cut off are none.
std::string input_object(const std::string& arguments) {
  const bool is_whole = arguments.starts_with('{') && Json::accept(arguments);
  return is_whole ? arguments : R"({"partial_json":)" + json_string(arguments) + "}";
}

// What came from the cache is counted beside `input_tokens`, not in it.
void append_usage(std::string& out, const AnswerShape& shape, std::int64_t n_cached_tokens,
                  std::int64_t n_output_tokens) {
  out += R"("usage":{"input_tokens":)" + std::to_string(shape.n_prompt_tokens - n_cached_tokens) +
         R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)" +
         std::to_string(n_cached_tokens) + R"(,"output_tokens":)" +
         std::to_string(n_output_tokens) + "}";
}

// {"id", "type", "role", "model", without closing brace.
void begin_message(std::string& out, const AnswerShape& shape) {
  out += R"({"id":)" + json_string(shape.id) + R"(,"type":"message","role":"assistant","model":)" +
         json_string(shape.model);
}

// The blocks of a whole message, comma separated.
void append_blocks(std::string& out, const ChatMessage& message) {
  const std::size_t begin = out.size();
  const auto next = [&] {
    if (out.size() > begin) out.push_back(',');
  };
  if (!message.reasoning.empty()) {
    out += R"({"type":"thinking","thinking":)" + json_string(message.reasoning) +
           R"(,"signature":""})";
  }
  if (!message.content.empty()) {
    next();
    out += R"({"type":"text","text":)" + json_string(message.content) + "}";
  }
  for (const ToolCall& call : message.tool_calls) {
    next();
    out += begin_tool_use(call) + R"(,"input":)" + input_object(call.arguments) + "}";
  }
}

HttpResponse error_answer_in_shape(const ApiError& error, const std::string& request_id) {
  HttpResponse response = error_response(error);
  response.body = message_error_body(response.body, response.status, request_id);
  return response;
}

}  // namespace

std::string message_error_body(const std::string& body, int status, const std::string& request_id) {
  Json error = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!error.is_object() || !error["error"].is_object()) return body;
  error["type"] = "error";
  error["request_id"] = request_id;
  error["error"]["type"] = error_type(status);
  return error.dump();
}

MessageStream::MessageStream(AnswerShape shape, std::string request_id)
    : shape_(std::move(shape)), request_id_(std::move(request_id)) {}

void MessageStream::append(std::string& out, std::int32_t, const Started& event) {
  begin_event(out, "message_start");
  out += R"(,"message":)";
  begin_message(out, shape_);
  out += R"(,"content":[],"stop_reason":null,"stop_sequence":null,)";
  append_usage(out, shape_, event.n_cached_tokens, 0);
  out += R"(,"graft":)" + shape_.graft_json + "}";
  end_event(out);
}

void MessageStream::enter(std::string& out, Block block, const std::string& start) {
  if (block_ == block && block != Block::kTool) return;
  leave(out);
  block_ = block;
  begin_event(out, "content_block_start");
  out += R"(,"index":)" + std::to_string(n_blocks_++) + R"(,"content_block":)" + start;
  end_event(out);
}

void MessageStream::leave(std::string& out) {
  if (std::exchange(block_, Block::kNone) == Block::kNone) return;
  begin_event(out, "content_block_stop");
  out += R"(,"index":)" + std::to_string(n_blocks_ - 1);
  end_event(out);
}

void MessageStream::append_piece(std::string& out, const char* type, const char* member,
                                 const std::string& text) const {
  begin_event(out, "content_block_delta");
  out += R"(,"index":)" + std::to_string(n_blocks_ - 1) + R"(,"delta":{"type":")" + type + "\",\"" +
         member + "\":";
  append_json_string(out, text);
  out += "}";
  end_event(out);
}

void MessageStream::append_delta(std::string& out, const ChatDelta& delta) {
  if (!delta.reasoning.empty()) {
    enter(out, Block::kThinking, R"({"type":"thinking","thinking":"","signature":""})");
    append_piece(out, "thinking_delta", "thinking", delta.reasoning);
  }
  if (!delta.content.empty()) {
    enter(out, Block::kText, R"({"type":"text","text":""})");
    append_piece(out, "text_delta", "text", delta.content);
  }
  for (const ToolCallDelta& step : delta.tool_calls) {
    if (step.is_first) enter(out, Block::kTool, begin_tool_use(step.call) + R"(,"input":{}})");
    if (step.call.arguments.empty()) continue;
    append_piece(out, "input_json_delta", "partial_json", step.call.arguments);
  }
}

void MessageStream::append(std::string& out, std::int32_t, const TokenOutput&,
                           const ChatDelta& delta) {
  append_delta(out, delta);
}

void MessageStream::append(std::string& out, std::int32_t, const Finished& event,
                           const ChoiceEnd& end) {
  append_delta(out, end.rest);
  leave(out);
  begin_event(out, "message_delta");
  out += R"(,"delta":{)";
  append_reason(out, event, end);
  out += "},";
  append_usage(out, shape_, event.n_cached_tokens, event.n_generated_tokens);
  append_choice_error(out, end.error);
  end_event(out);
  begin_event(out, "message_stop");
  end_event(out);
  complete_ = true;
}

HttpResponse MessageStream::error_answer(const ApiError& error) const {
  return error_answer_in_shape(error, request_id_);
}

void MessageStream::append_error(std::string& out, const ApiError& error) {
  out += "event: error\ndata: " + message_error_body(error_body(error), error.status, request_id_) +
         "\n\n";
}

void MessageStream::append_ping(std::string& out) {
  begin_event(out, "ping");
  end_event(out);
}

WholeMessage::WholeMessage(AnswerShape shape, std::string request_id)
    : shape_(std::move(shape)), request_id_(std::move(request_id)) {}

void WholeMessage::append(std::string&, std::int32_t, const Started&) {}

void WholeMessage::append(std::string&, std::int32_t, const TokenOutput&, const ChatDelta& delta) {
  graft::append(message_, delta);
}

void WholeMessage::append(std::string& out, std::int32_t, const Finished& event,
                          const ChoiceEnd& end) {
  graft::append(message_, end.rest);
  begin_message(out, shape_);
  out += R"(,"content":[)";
  append_blocks(out, message_);
  out += "],";
  append_reason(out, event, end);
  out.push_back(',');
  append_usage(out, shape_, event.n_cached_tokens, event.n_generated_tokens);
  append_choice_error(out, end.error);
  out += R"(,"graft":)" + shape_.graft_json + "}";
  complete_ = true;
}

HttpResponse WholeMessage::error_answer(const ApiError& error) const {
  return error_answer_in_shape(error, request_id_);
}

}  // namespace graft::api
