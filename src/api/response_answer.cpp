#include "api/response_answer.h"

#include <utility>

#include "api/json_text.h"
#include "api/logprobs_json.h"

namespace graft::api {
namespace {

const char* status_name(const Finished& event) {
  return event.reason == FinishReason::kLength ? "incomplete" : "completed";
}

std::string text_part(const std::string& text, const std::string& logprobs) {
  return R"({"type":"output_text","text":)" + json_string(text) +
         R"(,"annotations":[],"logprobs":[)" + logprobs + "]}";
}

std::string message_item(const std::string& id, const char* status, const std::string& parts) {
  return R"({"id":)" + json_string(id) + R"(,"type":"message","role":"assistant","status":")" +
         status + R"(","content":[)" + parts + "]}";
}

std::string call_item(const std::string& id, const char* status, const ToolCall& call) {
  return R"({"id":)" + json_string(id) + R"(,"type":"function_call","status":")" + status +
         R"(","call_id":)" + json_string(call.id) + R"(,"name":)" + json_string(call.name) +
         R"(,"arguments":)" + json_string(call.arguments) + "}";
}

std::string reasoning_item(const std::string& id, const std::string& text) {
  const std::string part =
      text.empty() ? "" : R"({"type":"reasoning_text","text":)" + json_string(text) + "}";
  return R"({"id":)" + json_string(id) + R"(,"type":"reasoning","summary":[],"content":[)" + part +
         "]}";
}

void append_item(std::string& list, const std::string& item) {
  if (!list.empty()) list.push_back(',');
  list += item;
}

std::string usage(const AnswerShape& shape, const Finished& event) {
  return R"({"input_tokens":)" + std::to_string(shape.n_prompt_tokens) +
         R"(,"input_tokens_details":{"cached_tokens":)" + std::to_string(event.n_cached_tokens) +
         R"(},"output_tokens":)" + std::to_string(event.n_generated_tokens) +
         R"(,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":)" +
         std::to_string(shape.n_prompt_tokens + event.n_generated_tokens) + "}";
}

void append_logprobs(std::string& list, const TokenOutput& event) {
  if (!list.empty()) list.push_back(',');
  append_chat_logprob(list, event);
}

}  // namespace

ResponseObject::ResponseObject(AnswerShape shape, ResponsesEcho echo)
    : shape_(std::move(shape)), echo_(std::move(echo)) {}

std::string ResponseObject::item_id(const char* kind, std::size_t index) const {
  const std::string id = kind + ("_" + shape_.id.substr(shape_.id.find('_') + 1));
  return index == 0 ? id : id + "_" + std::to_string(index);
}

void ResponseObject::append_head(std::string& out, const char* status) const {
  out += R"({"id":)" + json_string(shape_.id) + R"(,"object":"response","created_at":)" +
         std::to_string(shape_.created_unix_s) + R"(,"status":")" + status +
         R"(","background":false,"model":)" + json_string(shape_.model) + R"(,"graft":)" +
         shape_.graft_json;
  append_echo(out);
}

void ResponseObject::append_echo(std::string& out) const {
  out += R"(,"instructions":)" + echo_.instructions + R"(,"metadata":)" + echo_.metadata +
         R"(,"tools":)" + echo_.tools + R"(,"tool_choice":)" + echo_.tool_choice +
         R"(,"parallel_tool_calls":)" + (echo_.parallel_tool_calls ? "true" : "false") +
         R"(,"text":{"format":)" + echo_.text_format + R"(},"max_output_tokens":)" +
         echo_.max_output_tokens + R"(,"temperature":)";
  append_number(out, static_cast<double>(echo_.temperature));
  out += R"(,"top_p":)";
  append_number(out, static_cast<double>(echo_.top_p));
  out += R"(,"top_logprobs":)" + std::to_string(echo_.top_logprobs) +
         R"(,"previous_response_id":null,"store":false,"truncation":"disabled")";
}

void ResponseObject::append_begun(std::string& out) const {
  append_head(out, "in_progress");
  out += R"(,"error":null,"incomplete_details":null,"output":[],"usage":null})";
}

void ResponseObject::append_ended(std::string& out, const std::string& output,
                                  const Finished& event, const std::string& error) const {
  append_head(out, status_name(event));
  out += R"(,"error":)";
  out += error.empty() ? "null"
                       : R"({"code":"output_not_parsed","message":)" + json_string(error) + "}";
  out += R"(,"incomplete_details":)";
  out += event.reason == FinishReason::kLength ? R"({"reason":"max_output_tokens"})" : "null";
  out += R"(,"output":[)" + output + R"(],"usage":)" + usage(shape_, event) + "}";
}

void ResponseObject::append_failed(std::string& out, const ApiError& error) const {
  append_head(out, "failed");
  out += R"(,"error":{"code":"server_error","message":)" + json_string(error.message) +
         R"(},"incomplete_details":null,"output":[],"usage":null})";
}

ResponseStream::ResponseStream(AnswerShape shape, ResponsesEcho echo)
    : object_(std::move(shape), std::move(echo)) {}

void ResponseStream::begin_event(std::string& out, const char* type) {
  out += std::string("event: ") + type + "\ndata: {\"type\":\"" + type + R"(","sequence_number":)" +
         std::to_string(sequence_number_++);
}

void ResponseStream::append_place(std::string& out) const {
  const char* const kind = item_ == Item::kCall ? "fc" : (item_ == Item::kReasoning ? "rs" : "msg");
  out += R"(,"item_id":)" + json_string(object_.item_id(kind, n_items_)) + R"(,"output_index":)" +
         std::to_string(n_items_);
  if (item_ != Item::kCall) out += R"(,"content_index":0)";
}

std::string ResponseStream::item_json(const char* status) const {
  switch (item_) {
    case Item::kReasoning: return reasoning_item(object_.item_id("rs", n_items_), text_);
    case Item::kCall: {
      ToolCall call = call_;
      call.arguments = text_;
      return call_item(object_.item_id("fc", n_items_), status, call);
    }
    case Item::kMessage:
    case Item::kNone: break;
  }
  const bool has_part = std::string(status) != "in_progress";
  return message_item(object_.item_id("msg", n_items_), status,
                      has_part ? text_part(text_, logprobs_) : "");
}

void ResponseStream::append(std::string& out, std::int32_t, const Started&) {
  for (const char* type : {"response.created", "response.in_progress"}) {
    begin_event(out, type);
    out += R"(,"response":)";
    object_.append_begun(out);
    out += "}\n\n";
  }
}

void ResponseStream::begin_item(std::string& out, Item item) {
  if (item_ == item && item != Item::kCall) return;
  end_item(out, "completed");
  item_ = item;
  begin_event(out, "response.output_item.added");
  out += R"(,"output_index":)" + std::to_string(n_items_) + R"(,"item":)" +
         item_json("in_progress") + "}\n\n";
  if (item != Item::kMessage) return;
  begin_event(out, "response.content_part.added");
  append_place(out);
  out += R"(,"part":)" + text_part("", "") + "}\n\n";
}

void ResponseStream::append_piece(std::string& out, const char* type, const std::string& text) {
  if (text.empty()) return;
  text_ += text;
  begin_event(out, type);
  append_place(out);
  out += R"(,"delta":)" + json_string(text) + "}\n\n";
}

void ResponseStream::append_text(std::string& out, const std::string& text,
                                 const std::string& logprobs) {
  if (text.empty() && logprobs.empty()) return;
  begin_item(out, Item::kMessage);
  text_ += text;
  if (!logprobs.empty()) append_item(logprobs_, logprobs);
  begin_event(out, "response.output_text.delta");
  append_place(out);
  out += R"(,"delta":)" + json_string(text) + R"(,"logprobs":[)" + logprobs + "]}\n\n";
}

// Log-probabilities have their place in messages alone.
void ResponseStream::append_delta(std::string& out, const ChatDelta& delta,
                                  const std::string& logprobs) {
  if (!delta.reasoning.empty()) {
    begin_item(out, Item::kReasoning);
    append_piece(out, "response.reasoning_text.delta", delta.reasoning);
  }
  const bool is_message = delta.reasoning.empty() && delta.tool_calls.empty() &&
                          item_ != Item::kCall && item_ != Item::kReasoning;
  append_text(out, delta.content, is_message || !delta.content.empty() ? logprobs : "");
  for (const ToolCallDelta& step : delta.tool_calls) {
    if (step.is_first) {
      end_item(out, "completed");
      call_ = {step.call.id, step.call.name, {}};
      begin_item(out, Item::kCall);
    }
    append_piece(out, "response.function_call_arguments.delta", step.call.arguments);
  }
}

void ResponseStream::append(std::string& out, std::int32_t, const TokenOutput& event,
                            const ChatDelta& delta) {
  std::string logprobs;
  if (object_.shape().logprobs) append_logprobs(logprobs, event);
  append_delta(out, delta, logprobs);
}

void ResponseStream::end_text(std::string& out) {
  begin_event(out, "response.output_text.done");
  append_place(out);
  out += R"(,"text":)" + json_string(text_) + R"(,"logprobs":[)" + logprobs_ + "]}\n\n";
  begin_event(out, "response.content_part.done");
  append_place(out);
  out += R"(,"part":)" + text_part(text_, logprobs_) + "}\n\n";
}

void ResponseStream::end_item(std::string& out, const char* status) {
  if (item_ == Item::kNone) return;
  if (item_ == Item::kMessage) {
    end_text(out);
  } else {
    const bool is_call = item_ == Item::kCall;
    begin_event(out,
                is_call ? "response.function_call_arguments.done" : "response.reasoning_text.done");
    append_place(out);
    out += is_call ? R"(,"name":)" + json_string(call_.name) + R"(,"arguments":)" : R"(,"text":)";
    out += json_string(text_) + "}\n\n";
  }
  const std::string item = item_json(status);
  begin_event(out, "response.output_item.done");
  out += R"(,"output_index":)" + std::to_string(n_items_) + R"(,"item":)" + item + "}\n\n";
  append_item(output_, item);
  ++n_items_;
  item_ = Item::kNone;
  text_.clear();
  logprobs_.clear();
}

void ResponseStream::append(std::string& out, std::int32_t, const Finished& event,
                            const ChoiceEnd& end) {
  append_delta(out, end.rest, "");
  end_item(out, status_name(event));
  begin_event(out,
              event.reason == FinishReason::kLength ? "response.incomplete" : "response.completed");
  out += R"(,"response":)";
  object_.append_ended(out, output_, event, end.error);
  out += "}\n\n";
  complete_ = true;
}

void ResponseStream::append_error(std::string& out, const ApiError& error) {
  begin_event(out, "error");
  out += R"(,"code":)" + json_string(error.code) + R"(,"message":)" + json_string(error.message) +
         R"(,"param":null,"error":)" + error_body(error).substr(9) + "\n\n";
  begin_event(out, "response.failed");
  out += R"(,"response":)";
  object_.append_failed(out, error);
  out += "}\n\n";
}

WholeResponse::WholeResponse(AnswerShape shape, ResponsesEcho echo)
    : object_(std::move(shape), std::move(echo)) {}

void WholeResponse::append(std::string&, std::int32_t, const Started&) {}

void WholeResponse::append(std::string&, std::int32_t, const TokenOutput& event,
                           const ChatDelta& delta) {
  graft::append(message_, delta);
  if (object_.shape().logprobs) append_logprobs(logprobs_, event);
}

void WholeResponse::append(std::string& out, std::int32_t, const Finished& event,
                           const ChoiceEnd& end) {
  graft::append(message_, end.rest);
  const char* const status = status_name(event);
  std::string output;
  std::size_t n_items = 0;
  if (!message_.reasoning.empty()) {
    append_item(output, reasoning_item(object_.item_id("rs", n_items++), message_.reasoning));
  }
  if (!message_.content.empty() || message_.tool_calls.empty()) {
    append_item(output, message_item(object_.item_id("msg", n_items++), status,
                                     text_part(message_.content, logprobs_)));
  }
  for (const ToolCall& call : message_.tool_calls) {
    append_item(output, call_item(object_.item_id("fc", n_items++), status, call));
  }
  object_.append_ended(out, output, event, end.error);
  complete_ = true;
}

}  // namespace graft::api
