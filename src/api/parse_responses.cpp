// The body of /v1/responses, OpenAI's newer shape of chat, without its memory: nothing is stored.
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

Status read_message(const Json& item, const std::string& param, Json& messages) {
  GRAFT_ASSIGN_OR_RETURN(const std::string role, string_field(item, "role", param));
  if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
    return must_be(param + ".role", "one of user, assistant, system, developer");
  }
  const Json* content = find_field(item, "content");
  if (content == nullptr) return must_be(param + ".content", "a string or an array of parts");
  GRAFT_ASSIGN_OR_RETURN(
      const std::string text,
      text_of(*content, {"input_text", "output_text", "text"}, param + ".content"));
  messages.push_back(chat_message(role, text));
  return {};
}

// Calls in a row, and the text before them, are one message of the assistant.
Status read_function_call(const Json& item, const std::string& param, Json& messages) {
  GRAFT_ASSIGN_OR_RETURN(const std::string id, string_field(item, "call_id", param));
  GRAFT_ASSIGN_OR_RETURN(const std::string name, string_field(item, "name", param));
  GRAFT_ASSIGN_OR_RETURN(const std::string arguments, string_field(item, "arguments", param));
  if (messages.empty() || messages.back()["role"] != "assistant") {
    messages.push_back(chat_message("assistant", ""));
  }
  Json& calls = messages.back()["tool_calls"];
  calls.push_back(chat_tool_call(id, name, arguments));
  return {};
}

Status read_function_output(const Json& item, const std::string& param, Json& messages) {
  GRAFT_ASSIGN_OR_RETURN(const std::string id, string_field(item, "call_id", param));
  const Json* output = find_field(item, "output");
  if (output == nullptr) return must_be(param + ".output", "a string or an array of parts");
  GRAFT_ASSIGN_OR_RETURN(
      const std::string text,
      text_of(*output, {"input_text", "output_text", "text"}, param + ".output"));
  Json message = chat_message("tool", text);
  message["tool_call_id"] = id;
  messages.push_back(std::move(message));
  return {};
}

Status read_item(const Json& item, const std::string& param, Json& messages) {
  if (!item.is_object()) return must_be(param, "an object");
  std::string type = "message";  // what an item without a type is
  if (find_field(item, "type") != nullptr) {
    GRAFT_ASSIGN_OR_RETURN(type, string_field(item, "type", param));
  }
  if (type == "message") return read_message(item, param, messages);
  if (type == "function_call") return read_function_call(item, param, messages);
  if (type == "function_call_output") return read_function_output(item, param, messages);
  // Thoughts of earlier answers are not shown to a model again.
  if (type == "reasoning") return {};
  return Error{ErrorCode::kNotSupported,
               "'" + param +
                   "': items of this type are not supported; answers are not stored and "
                   "only functions are tools.",
               param + ".type"};
}

Status read_input(const Json& body, Json& chat) {
  Json messages = Json::array();
  if (const Json* text = find_field(body, "instructions")) {
    messages.push_back(chat_message("system", *text));
  }
  const Json* input = find_field(body, "input");
  if (input == nullptr) return invalid_argument("'input' is missing.", "input");
  if (input->is_string()) {
    messages.push_back(chat_message("user", *input));
  } else {
    if (input->empty()) return invalid_argument("'input' is empty.", "input");
    GRAFT_RETURN_IF_ERROR(check_list(*input, "input"));
    for (std::size_t i = 0; i < input->size(); ++i) {
      GRAFT_RETURN_IF_ERROR(read_item((*input)[i], element("input", i), messages));
    }
  }
  if (messages.empty()) return invalid_argument("'input' has no message.", "input");
  chat["messages"] = std::move(messages);
  return {};
}

Result<Json> read_tool(const Json& tool, const std::string& param) {
  GRAFT_ASSIGN_OR_RETURN(const std::string type, block_type(tool, param));
  if (type != "function") {
    return Error{ErrorCode::kNotSupported,
                 "'" + param + ".type': only tools of type function are supported.",
                 param + ".type"};
  }
  GRAFT_ASSIGN_OR_RETURN(const std::string name, string_field(tool, "name", param));
  Json function = {{"name", name}};
  copy_fields(tool, function, {"description", "parameters", "strict"});
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

Status read_tools(const Json& body, Json& chat, ResponsesEcho& echo) {
  const Json* tools = find_field(body, "tools");
  if (tools == nullptr || tools->empty()) return {};
  GRAFT_RETURN_IF_ERROR(check_list(*tools, "tools"));
  chat["tools"] = Json::array();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(Json tool, read_tool((*tools)[i], element("tools", i)));
    chat["tools"].push_back(std::move(tool));
  }
  echo.tools = tools->dump();
  return {};
}

Status read_tool_choice(const Json& body, Json& chat, ResponsesEcho& echo) {
  const Json* choice = find_field(body, "tool_choice");
  if (choice == nullptr) return {};
  if (choice->is_string()) {
    chat["tool_choice"] = *choice;
  } else {
    GRAFT_ASSIGN_OR_RETURN(const std::string type, block_type(*choice, "tool_choice"));
    if (type != "function") return must_be("tool_choice.type", "function");
    GRAFT_ASSIGN_OR_RETURN(const std::string name, string_field(*choice, "name", "tool_choice"));
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  }
  echo.tool_choice = choice->dump();
  return {};
}

Status read_text_format(const Json& body, Json& chat, ResponsesEcho& echo) {
  const Json* text = find_field(body, "text");
  const Json* format = text == nullptr ? nullptr : find_field(*text, "format");
  if (format == nullptr) return {};
  GRAFT_ASSIGN_OR_RETURN(const std::string type, block_type(*format, "text.format"));
  if (type == "json_schema") {
    Json schema = Json::object();
    copy_fields(*format, schema, {"name", "description", "schema", "strict"});
    chat["response_format"] = {{"type", type}, {"json_schema", std::move(schema)}};
  } else if (type == "json_object" || type == "text") {
    chat["response_format"] = {{"type", type}};
  } else {
    return must_be("text.format.type", "one of text, json_object, json_schema");
  }
  echo.text_format = format->dump();
  return {};
}

// Log-probabilities are asked for under `include`.
Status read_include(const Json& body, Json& chat, ResponsesEcho& echo) {
  if (const Json* top = find_field(body, "top_logprobs")) echo.top_logprobs = top->get<int>();
  const Json* include = find_field(body, "include");
  bool wanted = echo.top_logprobs > 0;
  if (include != nullptr) {
    GRAFT_RETURN_IF_ERROR(check_list(*include, "include"));
    for (std::size_t i = 0; i < include->size(); ++i) {
      if (!(*include)[i].is_string()) return must_be(element("include", i), "a string");
      wanted = wanted || (*include)[i] == "message.output_text.logprobs";
    }
  }
  if (!wanted) return {};
  chat["logprobs"] = true;
  chat["top_logprobs"] = echo.top_logprobs;
  return {};
}

void read_echo(const Json& body, ResponsesEcho& echo) {
  if (const Json* value = find_field(body, "instructions")) echo.instructions = value->dump();
  if (const Json* value = find_field(body, "metadata")) echo.metadata = value->dump();
  if (const Json* value = find_field(body, "max_output_tokens")) {
    echo.max_output_tokens = value->dump();
  }
  if (const Json* value = find_field(body, "parallel_tool_calls")) {
    echo.parallel_tool_calls = value->get<bool>();
  }
}

std::string chat_text(const Json& chat, std::string_view body) {
  std::vector<SchemaPlace> places;
  if (chat.contains("response_format")) {
    places.push_back({"/text/format/schema", "/response_format/json_schema/schema"});
  }
  const std::size_t n_tools = chat.contains("tools") ? chat["tools"].size() : 0;
  for (std::size_t i = 0; i < n_tools; ++i) {
    const std::string tool = "/tools/" + std::to_string(i);
    places.push_back({tool + "/parameters", tool + "/function/parameters"});
  }
  return places.empty() ? chat.dump() : text_in_order(chat, body, places);
}

}  // namespace

Result<ResponsesCall> parse_responses_call(std::string_view body, const ModelFacts& facts) {
  GRAFT_ASSIGN_OR_RETURN(const Json json, parse_request_json(body));
  GRAFT_RETURN_IF_ERROR(check_fields(json, Endpoint::kResponses));
  if (find_field(json, "previous_response_id") != nullptr) {
    return Error{ErrorCode::kNotSupported,
                 "'previous_response_id': answers are not stored; send the conversation so far as "
                 "'input'.",
                 "previous_response_id"};
  }
  ResponsesCall made;
  Json chat = Json::object();
  GRAFT_RETURN_IF_ERROR(read_input(json, chat));
  GRAFT_RETURN_IF_ERROR(read_tools(json, chat, made.echo));
  GRAFT_RETURN_IF_ERROR(read_tool_choice(json, chat, made.echo));
  GRAFT_RETURN_IF_ERROR(read_text_format(json, chat, made.echo));
  GRAFT_RETURN_IF_ERROR(read_include(json, chat, made.echo));
  copy_fields(
      json, chat,
      {"model", "modules", "lora", "stream", "temperature", "top_p", "top_k", "min_p", "seed",
       "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens", "ignore_eos",
       "stop_token_ids", "cache_salt", "chat_template_kwargs", "parallel_tool_calls"});
  if (const Json* limit = find_field(json, "max_output_tokens")) chat["max_tokens"] = *limit;
  read_echo(json, made.echo);
  GRAFT_ASSIGN_OR_RETURN(made.call, read_chat_call(chat, chat_text(chat, body), facts));
  if (made.call.constraint) made.call.constraint_param = "text.format";
  made.echo.temperature = made.call.sampling.temperature;
  made.echo.top_p = made.call.sampling.top_p;
  return made;
}

}  // namespace graft::api
