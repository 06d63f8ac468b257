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
    : shape_(std::move(shape)),
      echo_(std::move(echo)),
      item_id_("msg_" + shape_.id.substr(shape_.id.find('_') + 1)) {}

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
                                  const Finished& event) const {
  append_head(out, status_name(event));
  out += R"(,"error":null,"incomplete_details":)";
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
  out +=
      R"(,"item_id":)" + json_string(object_.item_id()) + R"(,"output_index":0,"content_index":0)";
}

void ResponseStream::append(std::string& out, std::int32_t, const Started&) {
  for (const char* type : {"response.created", "response.in_progress"}) {
    begin_event(out, type);
    out += R"(,"response":)";
    object_.append_begun(out);
    out += "}\n\n";
  }
}

void ResponseStream::append_delta(std::string& out, const std::string& text,
                                  const std::string& logprobs) {
  if (text.empty() && logprobs.empty()) return;
  if (!std::exchange(in_item_, true)) {
    begin_event(out, "response.output_item.added");
    out += R"(,"output_index":0,"item":)" + message_item(object_.item_id(), "in_progress", "") +
           "}\n\n";
    begin_event(out, "response.content_part.added");
    append_place(out);
    out += R"(,"part":)" + text_part("", "") + "}\n\n";
  }
  text_ += text;
  begin_event(out, "response.output_text.delta");
  append_place(out);
  out += R"(,"delta":)" + json_string(text) + R"(,"logprobs":[)" + logprobs + "]}\n\n";
}

void ResponseStream::append(std::string& out, std::int32_t, const TokenOutput& event) {
  std::string logprobs;
  if (object_.shape().logprobs) {
    append_logprobs(logprobs, event);
    append_logprobs(logprobs_, event);
  }
  append_delta(out, event.text, logprobs);
}

void ResponseStream::end_item(std::string& out, const char* status) {
  const std::string part = text_part(text_, logprobs_);
  begin_event(out, "response.output_text.done");
  append_place(out);
  out += R"(,"text":)" + json_string(text_) + R"(,"logprobs":[)" + logprobs_ + "]}\n\n";
  begin_event(out, "response.content_part.done");
  append_place(out);
  out += R"(,"part":)" + part + "}\n\n";
  begin_event(out, "response.output_item.done");
  out += R"(,"output_index":0,"item":)" + message_item(object_.item_id(), status, part) + "}\n\n";
}

void ResponseStream::append(std::string& out, std::int32_t, const Finished& event) {
  append_delta(out, event.text, "");
  std::string output;
  if (in_item_) {
    end_item(out, status_name(event));
    output = message_item(object_.item_id(), status_name(event), text_part(text_, logprobs_));
  }
  begin_event(out,
              event.reason == FinishReason::kLength ? "response.incomplete" : "response.completed");
  out += R"(,"response":)";
  object_.append_ended(out, output, event);
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

void WholeResponse::append(std::string&, std::int32_t, const TokenOutput& event) {
  text_ += event.text;
  if (object_.shape().logprobs) append_logprobs(logprobs_, event);
}

void WholeResponse::append(std::string& out, std::int32_t, const Finished& event) {
  text_ += event.text;
  object_.append_ended(
      out, message_item(object_.item_id(), status_name(event), text_part(text_, logprobs_)), event);
  complete_ = true;
}

}  // namespace graft::api
