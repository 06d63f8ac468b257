#include "api/answer_shape.h"

#include "api/json_text.h"
#include "router/resolve.h"

namespace graft::api {

std::string graft_object(const AttachmentSet& attachments) {
  std::string out = R"({"modules":[)";
  bool first = true;
  for (const Attachment& attachment : attachments.attachments) {
    out += first ? R"({"name":)" : R"(,{"name":)";
    first = false;
    append_json_string(out, attachment.module->name);
    out += R"(,"version":)";
    append_json_string(out, digest_of(*attachment.module));
    out += R"(,"scale":)";
    append_logprob(out, attachment.scale);
    out += "}";
  }
  return out + "]}";
}

std::string modules_header(const AttachmentSet& attachments) {
  constexpr std::size_t kShownDigits = 12;
  std::string out;
  for (const Attachment& attachment : attachments.attachments) {
    if (!out.empty()) out += ", ";
    for (const char c : attachment.module->name) out.push_back(c > 0x20 && c < 0x7F ? c : '?');
    out += "@" + digest_of(*attachment.module).substr(0, kShownDigits) + "*";
    append_logprob(out, attachment.scale);
  }
  return out;
}

std::string object_prefix(const AnswerShape& shape, bool chunk) {
  std::string out = R"({"id":)";
  append_json_string(out, shape.id);
  out += R"(,"object":)";
  out += !shape.chat ? R"("text_completion")"
                     : (chunk ? R"("chat.completion.chunk")" : R"("chat.completion")");
  out += R"(,"created":)" + std::to_string(shape.created_unix_s) + R"(,"model":)";
  append_json_string(out, shape.model);
  out += R"(,"system_fingerprint":)";
  append_json_string(out, shape.fingerprint);
  return out;
}

std::string usage_object(std::int64_t n_prompt_tokens, std::int64_t n_completion_tokens,
                         std::int64_t n_cached_tokens) {
  return R"({"prompt_tokens":)" + std::to_string(n_prompt_tokens) + R"(,"completion_tokens":)" +
         std::to_string(n_completion_tokens) + R"(,"total_tokens":)" +
         std::to_string(n_prompt_tokens + n_completion_tokens) +
         R"(,"prompt_tokens_details":{"cached_tokens":)" + std::to_string(n_cached_tokens) + "}}";
}

std::string timings_object(const Finished& event) {
  std::string out;
  const auto append = [&out](const char* name, std::int64_t n, double ms) {
    const std::string key = name;
    out += (out.empty() ? "{\"" : ",\"") + key + R"(_n":)" + std::to_string(n) + ",\"" + key +
           R"(_ms":)";
    append_number(out, ms);
    out += ",\"" + key + R"(_per_token_ms":)";
    append_number(out, n > 0 ? ms / static_cast<double>(n) : 0.0);
    out += ",\"" + key + R"(_per_second":)";
    append_number(out, ms > 0 ? 1000.0 * static_cast<double>(n) / ms : 0.0);
  };
  append("prompt", event.n_prompt_tokens, event.timings.prefill_ms);
  append("predicted", event.n_generated_tokens, event.timings.decode_ms);
  return out + "}";
}

std::string token_array(std::span<const TokenId> tokens) {
  std::string out = "[";
  for (const TokenId token : tokens) {
    if (out.size() > 1) out.push_back(',');
    out += std::to_string(token);
  }
  return out + "]";
}

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kStop:
    case FinishReason::kCancelled: break;
  }
  return "stop";
}

namespace {

void append_call(std::string& out, const ToolCallDelta& step) {
  out += R"({"index":)" + std::to_string(step.index);
  if (step.is_first) {
    out += R"(,"id":)";
    append_json_string(out, step.call.id);
    out += R"(,"type":"function")";
  }
  out += R"(,"function":{)";
  if (step.is_first) {
    out += R"("name":)";
    append_json_string(out, step.call.name);
    out.push_back(',');
  }
  out += R"("arguments":)";
  append_json_string(out, step.call.arguments);
  out += "}}";
}

}  // namespace

void append_delta_members(std::string& out, const ChatDelta& delta) {
  const std::size_t begin = out.size();
  const auto member = [&](const char* name) {
    if (out.size() > begin) out.push_back(',');
    out += name;
  };
  if (!delta.reasoning.empty()) {
    member(R"("reasoning_content":)");
    append_json_string(out, delta.reasoning);
  }
  if (!delta.content.empty()) {
    member(R"("content":)");
    append_json_string(out, delta.content);
  }
  if (delta.tool_calls.empty()) return;
  member(R"("tool_calls":[)");
  for (std::size_t i = 0; i < delta.tool_calls.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_call(out, delta.tool_calls[i]);
  }
  out.push_back(']');
}

void append_choice_error(std::string& out, const std::string& message) {
  if (message.empty()) return;
  out += R"(,"error":{"message":)";
  append_json_string(out, message);
  out += R"(,"type":"invalid_output","param":null,"code":"output_not_parsed"})";
}

}  // namespace graft::api
