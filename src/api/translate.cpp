#include "api/translate.h"

#include <algorithm>
#include <utility>

#include "api/fields.h"

namespace graft::api {

void copy_fields(const Json& from, Json& to, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const Json* value = find_field(from, name)) to[name] = *value;
  }
}

Result<std::string> string_field(const Json& object, const char* name, const std::string& param) {
  const std::string full = param.empty() ? std::string(name) : param + "." + name;
  const Json* value = find_field(object, name);
  if (value == nullptr || !value->is_string()) return must_be(full, "a string");
  return value->get<std::string>();
}

Result<std::string> block_type(const Json& block, const std::string& param) {
  if (!block.is_object()) return must_be(param, "an object");
  return string_field(block, "type", param);
}

Status check_list(const Json& list, const std::string& param) {
  if (!list.is_array()) return must_be(param, "an array");
  if (list.size() > kMaxBlocks) {
    return invalid_argument(
        "'" + param + "' has more than " + std::to_string(kMaxBlocks) + " entries.", param);
  }
  return {};
}

Result<std::string> text_of(const Json& content, std::initializer_list<const char*> types,
                            const std::string& param) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return must_be(param, "a string or an array of text blocks");
  GRAFT_RETURN_IF_ERROR(check_list(content, param));
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string at = element(param, i);
    GRAFT_ASSIGN_OR_RETURN(const std::string type, block_type(content[i], at));
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      return Error{ErrorCode::kNotSupported,
                   "'" + at + "': blocks of this type are not supported here; send text.",
                   at + ".type"};
    }
    GRAFT_ASSIGN_OR_RETURN(const std::string more, string_field(content[i], "text", at));
    if (!text.empty()) text += "\n";
    text += more;
  }
  return text;
}

std::string text_in_order(const Json& chat, std::string_view body,
                          std::span<const SchemaPlace> places) {
  using Ordered = nlohmann::ordered_json;
  Ordered made = chat;
  const Ordered source = Ordered::parse(body, nullptr, /*allow_exceptions=*/false);
  for (const SchemaPlace& place : places) {
    const Ordered::json_pointer from(place.from);
    if (source.contains(from)) made[Ordered::json_pointer(place.to)] = source[from];
  }
  return made.dump();
}

Json chat_message(const std::string& role, Json content) {
  Json message = {{"role", role}};
  message["content"] = std::move(content);
  return message;
}

Json chat_tool_call(const std::string& id, const std::string& name, const std::string& arguments) {
  Json function = {{"name", name}, {"arguments", arguments}};
  return {{"id", id}, {"type", "function"}, {"function", std::move(function)}};
}

}  // namespace graft::api
