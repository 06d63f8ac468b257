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

const char* finish_reason_name(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

}  // namespace graft::api
