// The body of /v1/chat/completions.
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "api/generation_call.h"
#include "api/parse_common.h"
#include "api/parse_constraint.h"

namespace graft::api {
namespace {

constexpr std::size_t kMaxMessages = 4096;
constexpr std::size_t kMaxParts = 1024;

Error bad_message(const std::string& param, const std::string& expected) {
  return invalid_argument("'" + param + "' must be " + expected + ".", param);
}

Result<Json> read_part(const Json& part, const std::string& param) {
  const Json* type = part.is_object() ? find_field(part, "type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return bad_message(param, "an object with a string 'type'");
  }
  if (*type != "text") {
    // The type is the client's text: only the known ones are repeated.
    static constexpr std::array<const char*, 5> kMedia = {"image_url", "input_audio", "file",
                                                          "video_url", "refusal"};
    const auto known = std::find(kMedia.begin(), kMedia.end(), type->get_ref<const std::string&>());
    const std::string shown =
        known == kMedia.end() ? "this type" : "type '" + std::string(*known) + "'";
    return Error{ErrorCode::kNotSupported,
                 "'" + param + "': content parts of " + shown + " are not supported; send text.",
                 param + ".type"};
  }
  const Json* text = find_field(part, "text");
  if (text == nullptr || !text->is_string()) return bad_message(param + ".text", "a string");
  return Json{{"type", "text"}, {"text", *text}};
}

Result<Json> read_content(const Json& message, const std::string& role, const std::string& param) {
  const Json* content = find_field(message, "content");
  if (content == nullptr) return bad_message(param, "a string or an array of text parts");
  if (content->is_string()) return *content;
  if (!content->is_array() || content->empty()) {
    return bad_message(param, "a string or an array of text parts (role '" + role + "')");
  }
  if (content->size() > kMaxParts) {
    return invalid_argument("'" + param + "' has more than 1024 parts.", param);
  }
  Json parts = Json::array();
  for (std::size_t i = 0; i < content->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(Json part,
                           read_part((*content)[i], param + "[" + std::to_string(i) + "]"));
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<Json> read_message(const Json& message, const std::string& param) {
  if (!message.is_object()) return bad_message(param, "an object");
  const Json* role = find_field(message, "role");
  if (role == nullptr || !role->is_string()) return bad_message(param + ".role", "a string");
  std::string role_name = role->get<std::string>();
  if (role_name == "tool" || role_name == "function" ||
      find_field(message, "tool_calls") != nullptr ||
      find_field(message, "function_call") != nullptr) {
    return Error{ErrorCode::kNotSupported, "'" + param + "': tool messages are not supported yet.",
                 param};
  }
  if (role_name == "developer") role_name = "system";
  if (role_name != "system" && role_name != "user" && role_name != "assistant") {
    return bad_message(param + ".role", "one of system, developer, user, assistant");
  }
  Json read = {{"role", role_name}};
  GRAFT_ASSIGN_OR_RETURN(read["content"], read_content(message, role_name, param + ".content"));
  if (const Json* name = find_field(message, "name")) {
    if (!name->is_string()) return bad_message(param + ".name", "a string");
    read["name"] = *name;
  }
  return read;
}

Result<ChatPrompt> read_messages(const Json& body) {
  const Json* messages = find_field(body, "messages");
  if (messages == nullptr) return invalid_argument("'messages' is missing.", "messages");
  if (messages->empty()) return invalid_argument("'messages' is empty.", "messages");
  if (messages->size() > kMaxMessages) {
    return invalid_argument("'messages' has more than 4096 entries.", "messages");
  }
  Json read = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(Json message,
                           read_message((*messages)[i], "messages[" + std::to_string(i) + "]"));
    read.push_back(std::move(message));
  }
  ChatPrompt prompt;
  prompt.messages_json = read.dump();
  if (const Json* value = find_field(body, "add_generation_prompt")) {
    prompt.add_generation_prompt = value->get<bool>();
  }
  if (const Json* value = find_field(body, "continue_final_message")) {
    prompt.continue_final_message = value->get<bool>();
  }
  return prompt;
}

}  // namespace

Result<GenerationCall> parse_chat_call(std::string_view body, const ModelFacts& facts) {
  GRAFT_ASSIGN_OR_RETURN(const Json json, parse_request_json(body));
  return read_chat_call(json, body, facts);
}

Result<GenerationCall> read_chat_call(const Json& json, std::string_view body,
                                      const ModelFacts& facts) {
  GRAFT_RETURN_IF_ERROR(check_fields(json, Endpoint::kChat));
  GRAFT_RETURN_IF_ERROR(refuse_unsupported(json));
  const Json* logprobs = find_field(json, "logprobs");
  if (logprobs != nullptr && !logprobs->is_boolean()) {
    return invalid_argument("'logprobs' must be true or false.", "logprobs");
  }
  GenerationCall call;
  GRAFT_RETURN_IF_ERROR(read_modules(json, call));
  GRAFT_RETURN_IF_ERROR(read_sampling(json, facts, call));
  call.stop.max_tokens = facts.default_max_tokens;
  GRAFT_RETURN_IF_ERROR(read_stop_rules(json, facts, call));
  GRAFT_RETURN_IF_ERROR(read_cache_rules(json, call));
  GRAFT_RETURN_IF_ERROR(read_extras(json, facts, call));
  GRAFT_RETURN_IF_ERROR(read_stream_options(json, call));
  GRAFT_RETURN_IF_ERROR(read_constraint(json, body, call));
  GRAFT_RETURN_IF_ERROR(read_prompt_report(json, call));
  GRAFT_ASSIGN_OR_RETURN(call.chat, read_messages(json));
  if (call.n_choices > facts.max_choices) {
    return invalid_argument("'n' must be at most " + std::to_string(facts.max_choices) + ".", "n");
  }
  return call;
}

}  // namespace graft::api
