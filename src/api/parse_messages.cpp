// The messages of a chat: the history that a template renders.
#include "api/parse_messages.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "api/fields.h"
#include "api/parse_tools.h"

namespace graft::api {
namespace {

constexpr std::size_t kMaxMessages = 4096;
constexpr std::size_t kMaxParts = 1024;
constexpr std::size_t kMaxIdBytes = 512;

Result<Json> read_part(const Json& part, const std::string& param) {
  const Json* type = part.is_object() ? find_field(part, "type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return must_be(param, "an object with a string 'type'");
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
  if (text == nullptr || !text->is_string()) return must_be(param + ".text", "a string");
  return Json{{"type", "text"}, {"text", *text}};
}

Result<Json> read_content(const Json& message, const std::string& role, const std::string& param) {
  const Json* content = find_field(message, "content");
  if (content == nullptr) return must_be(param, "a string or an array of text parts");
  if (content->is_string()) return *content;
  if (!content->is_array() || content->empty()) {
    return must_be(param, "a string or an array of text parts (role '" + role + "')");
  }
  if (content->size() > kMaxParts) {
    return invalid_argument("'" + param + "' has more than 1024 parts.", param);
  }
  Json parts = Json::array();
  for (std::size_t i = 0; i < content->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(Json part, read_part((*content)[i], element(param, i)));
    parts.push_back(std::move(part));
  }
  return parts;
}

// A string of at most kMaxIdBytes, or null when the field is absent.
Result<Json> read_short_string(const Json& message, const char* name, const std::string& param) {
  const Json* value = find_field(message, name);
  if (value == nullptr) return Json(nullptr);
  if (!value->is_string() || value->get_ref<const std::string&>().size() > kMaxIdBytes) {
    return must_be(param + "." + name, "a string of at most 512 bytes");
  }
  return *value;
}

Result<Json> read_tool_call(const Json& call, const std::string& param) {
  if (!call.is_object()) return must_be(param, "an object");
  const Json* type = find_field(call, "type");
  if (type != nullptr && *type != "function") return must_be(param + ".type", "\"function\"");
  const Json* function = find_field(call, "function");
  if (function == nullptr || !function->is_object()) {
    return must_be(param + ".function", "an object");
  }
  const Json* name = find_field(*function, "name");
  if (name == nullptr || !name->is_string() || !is_tool_name(name->get_ref<const std::string&>())) {
    return must_be(param + ".function.name", kToolNameRule);
  }
  const Json* arguments = find_field(*function, "arguments");
  if (arguments == nullptr || !(arguments->is_string() || arguments->is_object())) {
    return must_be(param + ".function.arguments", "a string of JSON");
  }
  Json read = {{"type", "function"},
               {"function",
                {{"name", *name},
                 {"arguments", arguments->is_string() ? *arguments : Json(arguments->dump())}}}};
  GRAFT_ASSIGN_OR_RETURN(Json id, read_short_string(call, "id", param));
  if (!id.is_null()) read["id"] = std::move(id);
  return read;
}

// The calls of an assistant message; an empty array where there are none.
Result<Json> read_tool_calls(const Json& message, const std::string& param) {
  Json read = Json::array();
  const Json* calls = find_field(message, "tool_calls");
  if (calls == nullptr) return read;
  if (!calls->is_array() || calls->size() > kMaxTools) {
    return must_be(param, "an array of at most " + std::to_string(kMaxTools) + " calls");
  }
  for (std::size_t i = 0; i < calls->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(Json call, read_tool_call((*calls)[i], element(param, i)));
    read.push_back(std::move(call));
  }
  return read;
}

Result<std::string> read_role(const Json& message, const std::string& param) {
  const Json* role = find_field(message, "role");
  if (role == nullptr || !role->is_string()) return must_be(param + ".role", "a string");
  const std::string name = role->get<std::string>();
  if (name == "function" || find_field(message, "function_call") != nullptr) {
    return Error{ErrorCode::kNotSupported,
                 "'" + param +
                     "': functions are the older form of tools and are not supported; send "
                     "'tool_calls' and messages of the role 'tool'.",
                 param};
  }
  for (const char* known : {"system", "user", "assistant", "tool"}) {
    if (name == known) return name;
  }
  if (name == "developer") return std::string("system");
  return must_be(param + ".role", "one of system, developer, user, assistant, tool");
}

// What an assistant's message has besides its content.
Status read_assistant(const Json& message, const std::string& param, Json& read) {
  GRAFT_ASSIGN_OR_RETURN(Json calls, read_tool_calls(message, param + ".tool_calls"));
  if (!calls.empty()) read["tool_calls"] = std::move(calls);
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const Json* reasoning = find_field(message, name);
    if (reasoning == nullptr) continue;
    if (!reasoning->is_string()) return must_be(param + "." + name, "a string");
    if (!reasoning->get_ref<const std::string&>().empty()) read["reasoning_content"] = *reasoning;
    break;
  }
  return {};
}

Result<Json> read_message(const Json& message, const std::string& param) {
  if (!message.is_object()) return must_be(param, "an object");
  GRAFT_ASSIGN_OR_RETURN(const std::string role, read_role(message, param));
  Json read = {{"role", role}};
  if (role == "assistant") {
    GRAFT_RETURN_IF_ERROR(read_assistant(message, param, read));
  } else if (const Json* calls = find_field(message, "tool_calls");
             calls != nullptr && !calls->empty()) {
    return must_be(param + ".role", "assistant in a message with 'tool_calls'");
  }
  if (read.contains("tool_calls") && find_field(message, "content") == nullptr) {
    read["content"] = "";
  } else {
    GRAFT_ASSIGN_OR_RETURN(read["content"], read_content(message, role, param + ".content"));
  }
  if (role == "tool") {
    GRAFT_ASSIGN_OR_RETURN(read["tool_call_id"], read_short_string(message, "tool_call_id", param));
    if (read["tool_call_id"].is_null()) {
      return must_be(param + ".tool_call_id", "the id of the call that this answers");
    }
  }
  GRAFT_ASSIGN_OR_RETURN(Json name, read_short_string(message, "name", param));
  if (!name.is_null()) read["name"] = std::move(name);
  return read;
}

}  // namespace

Result<std::string> read_messages(const Json& body) {
  const Json* messages = find_field(body, "messages");
  if (messages == nullptr) return invalid_argument("'messages' is missing.", "messages");
  if (messages->empty()) return invalid_argument("'messages' is empty.", "messages");
  if (messages->size() > kMaxMessages) {
    return invalid_argument("'messages' has more than 4096 entries.", "messages");
  }
  Json read = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(Json message, read_message((*messages)[i], element("messages", i)));
    read.push_back(std::move(message));
  }
  return read.dump();
}

}  // namespace graft::api
