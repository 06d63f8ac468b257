// The body of /v1/messages, Anthropic's shape of chat.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "api/dialects.h"
#include "api/fields.h"
#include "api/parse_common.h"
#include "api/translate.h"

namespace graft::api {
namespace {

Error unknown_block(const std::string& param) {
  return Error{ErrorCode::kNotSupported,
               "'" + param +
                   "': blocks of this type are not supported; send text, tool_use and "
                   "tool_result.",
               param + ".type"};
}

// The outcome of a tool: a message of its own in chat.
Result<Json> read_tool_result(const Json& block, const std::string& param) {
  GRAFT_ASSIGN_OR_RETURN(const std::string id, string_field(block, "tool_use_id", param));
  std::string text;
  if (const Json* content = find_field(block, "content")) {
    GRAFT_ASSIGN_OR_RETURN(text, text_of(*content, {"text"}, param + ".content"));
  }
  Json message = chat_message("tool", text);
  message["tool_call_id"] = id;
  return message;
}

Result<Json> read_tool_use(const Json& block, const std::string& param) {
  GRAFT_ASSIGN_OR_RETURN(const std::string id, string_field(block, "id", param));
  GRAFT_ASSIGN_OR_RETURN(const std::string name, string_field(block, "name", param));
  const Json* input = find_field(block, "input");
  if (input != nullptr && !input->is_object()) return must_be(param + ".input", "an object");
  return chat_tool_call(id, name, input == nullptr ? "{}" : input->dump());
}

// The blocks of one message, sorted by what chat makes of them.
struct Blocks {
  Json text_parts = Json::array();
  Json tool_calls = Json::array();
  Json tool_results = Json::array();
};

Status read_block(const Json& block, const std::string& role, const std::string& param,
                  Blocks& blocks) {
  GRAFT_ASSIGN_OR_RETURN(const std::string type, block_type(block, param));
  if (type == "text") {
    GRAFT_ASSIGN_OR_RETURN(const std::string text, string_field(block, "text", param));
    blocks.text_parts.push_back({{"type", "text"}, {"text", text}});
  } else if (type == "tool_use" && role == "assistant") {
    GRAFT_ASSIGN_OR_RETURN(Json call, read_tool_use(block, param));
    blocks.tool_calls.push_back(std::move(call));
  } else if (type == "tool_result" && role == "user") {
    GRAFT_ASSIGN_OR_RETURN(Json result, read_tool_result(block, param));
    blocks.tool_results.push_back(std::move(result));
  } else if (type != "thinking" && type != "redacted_thinking") {
    // Thoughts of earlier answers are not shown to a model again.
    return unknown_block(param);
  }
  return {};
}

Status read_message(const Json& message, const std::string& param, Json& messages) {
  if (!message.is_object()) return must_be(param, "an object");
  GRAFT_ASSIGN_OR_RETURN(const std::string role, string_field(message, "role", param));
  if (role != "user" && role != "assistant") return must_be(param + ".role", "user or assistant");
  const Json* content = find_field(message, "content");
  if (content == nullptr) return must_be(param + ".content", "a string or an array of blocks");
  if (content->is_string()) {
    messages.push_back(chat_message(role, *content));
    return {};
  }
  GRAFT_RETURN_IF_ERROR(check_list(*content, param + ".content"));
  Blocks blocks;
  for (std::size_t i = 0; i < content->size(); ++i) {
    GRAFT_RETURN_IF_ERROR(read_block((*content)[i], role, element(param + ".content", i), blocks));
  }
  for (Json& result : blocks.tool_results) messages.push_back(std::move(result));
  if (blocks.text_parts.empty() && blocks.tool_calls.empty()) {
    return blocks.tool_results.empty() ? must_be(param + ".content", "a string or blocks of text")
                                       : Status();
  }
  Json content_made = blocks.text_parts.empty() ? Json("") : std::move(blocks.text_parts);
  Json made = chat_message(role, std::move(content_made));
  if (!blocks.tool_calls.empty()) made["tool_calls"] = std::move(blocks.tool_calls);
  messages.push_back(std::move(made));
  return {};
}

Status read_messages(const Json& body, Json& chat) {
  Json messages = Json::array();
  if (const Json* system = find_field(body, "system")) {
    GRAFT_ASSIGN_OR_RETURN(const std::string text, text_of(*system, {"text"}, "system"));
    if (!text.empty()) messages.push_back(chat_message("system", text));
  }
  const Json* list = find_field(body, "messages");
  if (list == nullptr) return invalid_argument("'messages' is missing.", "messages");
  if (list->empty()) return invalid_argument("'messages' is empty.", "messages");
  GRAFT_RETURN_IF_ERROR(check_list(*list, "messages"));
  for (std::size_t i = 0; i < list->size(); ++i) {
    GRAFT_RETURN_IF_ERROR(read_message((*list)[i], element("messages", i), messages));
  }
  // A last message of the assistant is the beginning of its answer.
  const Json& last = messages.back();
  if (last["role"] == "assistant" && !last.contains("tool_calls")) {
    chat["continue_final_message"] = true;
    chat["add_generation_prompt"] = false;
  }
  chat["messages"] = std::move(messages);
  return {};
}

Result<Json> read_tool(const Json& tool, const std::string& param) {
  if (!tool.is_object()) return must_be(param, "an object");
  const Json* type = find_field(tool, "type");
  if (type != nullptr && *type != "custom") {
    return Error{ErrorCode::kNotSupported,
                 "'" + param + ".type': only tools of type custom are supported.", param + ".type"};
  }
  GRAFT_ASSIGN_OR_RETURN(const std::string name, string_field(tool, "name", param));
  Json function = {{"name", name}};
  if (const Json* description = find_field(tool, "description")) {
    if (!description->is_string()) return must_be(param + ".description", "a string");
    function["description"] = *description;
  }
  const Json* schema = find_field(tool, "input_schema");
  if (schema != nullptr && !schema->is_object()) {
    return must_be(param + ".input_schema", "an object");
  }
  function["parameters"] = schema == nullptr ? Json{{"type", "object"}} : *schema;
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

Status read_tools(const Json& body, Json& chat) {
  const Json* tools = find_field(body, "tools");
  if (tools == nullptr || tools->empty()) return {};
  GRAFT_RETURN_IF_ERROR(check_list(*tools, "tools"));
  chat["tools"] = Json::array();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(Json tool, read_tool((*tools)[i], element("tools", i)));
    chat["tools"].push_back(std::move(tool));
  }
  return {};
}

Status read_tool_choice(const Json& body, Json& chat) {
  const Json* choice = find_field(body, "tool_choice");
  if (choice == nullptr) return {};
  GRAFT_ASSIGN_OR_RETURN(const std::string type, string_field(*choice, "type", "tool_choice"));
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    GRAFT_ASSIGN_OR_RETURN(const std::string name, string_field(*choice, "name", "tool_choice"));
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  } else {
    return must_be("tool_choice.type", "one of auto, any, tool, none");
  }
  if (const Json* alone = find_field(*choice, "disable_parallel_tool_use")) {
    if (!alone->is_boolean()) {
      return must_be("tool_choice.disable_parallel_tool_use", "true or false");
    }
    chat["parallel_tool_calls"] = !alone->get<bool>();
  }
  return {};
}

// {"type": "json_schema", "schema": {...}} under either of two names.
Status read_format(const Json& body, Json& chat) {
  std::string param = "output_format";
  const Json* format = find_field(body, "output_format");
  if (const Json* config = find_field(body, "output_config"); format == nullptr && config) {
    param = "output_config.format";
    format = find_field(*config, "format");
  }
  if (format == nullptr) return {};
  GRAFT_ASSIGN_OR_RETURN(const std::string type, block_type(*format, param));
  if (type != "json_schema") return must_be(param + ".type", "json_schema");
  const Json* schema = find_field(*format, "schema");
  if (schema == nullptr || !schema->is_object()) return must_be(param + ".schema", "an object");
  chat["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "answer"}, {"schema", *schema}}}};
  return {};
}

std::vector<SchemaPlace> schema_places(const Json& chat) {
  std::vector<SchemaPlace> places;
  if (chat.contains("response_format")) {
    const std::string format = "/response_format/json_schema/schema";
    places = {{"/output_config/format/schema", format}, {"/output_format/schema", format}};
  }
  const std::size_t n_tools = chat.contains("tools") ? chat["tools"].size() : 0;
  for (std::size_t i = 0; i < n_tools; ++i) {
    const std::string tool = "/tools/" + std::to_string(i);
    places.push_back({tool + "/input_schema", tool + "/function/parameters"});
  }
  return places;
}

Result<GenerationCall> parse(std::string_view body, const ModelFacts& facts, Endpoint endpoint) {
  GRAFT_ASSIGN_OR_RETURN(const Json json, parse_request_json(body));
  GRAFT_RETURN_IF_ERROR(check_fields(json, endpoint));
  if (endpoint == Endpoint::kMessages && find_field(json, "max_tokens") == nullptr) {
    return invalid_argument("'max_tokens' is missing.", "max_tokens");
  }
  Json chat = Json::object();
  GRAFT_RETURN_IF_ERROR(read_messages(json, chat));
  GRAFT_RETURN_IF_ERROR(read_tools(json, chat));
  GRAFT_RETURN_IF_ERROR(read_tool_choice(json, chat));
  GRAFT_RETURN_IF_ERROR(read_format(json, chat));
  copy_fields(json, chat, {"model", "chat_template_kwargs"});
  if (endpoint == Endpoint::kMessages) {
    copy_fields(json, chat,
                {"modules", "lora", "stream", "temperature", "top_p", "top_k", "min_p", "seed",
                 "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens",
                 "ignore_eos", "stop_token_ids", "cache_salt", "max_tokens"});
    if (const Json* stop = find_field(json, "stop_sequences")) chat["stop"] = *stop;
  }
  const bool has_schemas = chat.contains("tools") || chat.contains("response_format");
  auto call = read_chat_call(
      chat, has_schemas ? text_in_order(chat, body, schema_places(chat)) : chat.dump(), facts);
  if (!call && call.error().param == "stop") {
    Error error = std::move(call).error();
    error.param = "stop_sequences";
    return error;
  }
  if (call && call->constraint) {
    call->constraint_param =
        find_field(json, "output_format") != nullptr ? "output_format" : "output_config.format";
  }
  return call;
}

}  // namespace

Result<GenerationCall> parse_messages_call(std::string_view body, const ModelFacts& facts) {
  return parse(body, facts, Endpoint::kMessages);
}

Result<GenerationCall> parse_count_tokens_call(std::string_view body, const ModelFacts& facts) {
  return parse(body, facts, Endpoint::kCountTokens);
}

}  // namespace graft::api
