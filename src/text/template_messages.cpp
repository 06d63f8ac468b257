#include "text/template_messages.h"

#include <stdexcept>
#include <utility>

#include "text/chat_template.h"
#include "text/json_nesting.h"
#include "text/vocabulary.h"

namespace graft {
namespace {

common_json as_text_parts(const std::string& text) {
  common_json part = common_json::object();
  part["type"] = "text";
  part["text"] = text;
  common_json parts = common_json::array();
  parts.push_back(part);
  return parts;
}

// A history of tool calls holds their arguments as JSON text; some templates want the object.
void parse_arguments(common_json& message) {
  if (!message.contains("tool_calls")) {
    return;
  }
  for (common_json& call : message["tool_calls"]) {
    common_json& arguments = call["function"]["arguments"];
    if (!arguments.is_string()) {
      continue;
    }
    const auto text = arguments.get<std::string>();
    if (is_nested_deeper(text, kMaxMessagesDepth)) {
      throw std::invalid_argument("tool call arguments are nested too deep");
    }
    common_json parsed = common_json::parse_no_throw(text);
    if (!parsed.is_discarded()) {
      arguments = std::move(parsed);
    }
  }
}

// Joins a leading system message with the next one, for templates without a system role.
void fold_system(std::vector<common_chat_msg>& messages) {
  if (messages.size() < 2 || messages.front().role != "system") {
    return;
  }
  common_chat_msg& next = messages[1];
  next.content = content_text(messages.front()) + "\n" + content_text(next);
  next.content_parts.clear();
  messages.erase(messages.begin());
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Ministral's templates take reasoning as a part of the content.
common_json as_thinking_parts(const common_json& message) {
  common_json parts = common_json::array();
  if (message.contains("reasoning_content")) {
    common_json part = common_json::object();
    part["type"] = "thinking";
    part["thinking"] = message.at("reasoning_content");
    parts.push_back(part);
  }
  if (message.contains("content")) {
    const common_json& content = message.at("content");
    parts.insert(content.is_string() ? as_text_parts(content.get<std::string>()) : content);
  }
  common_json changed = message;
  changed["content"] = parts;
  changed.erase("reasoning_content");
  return changed;
}

}  // namespace

Status check_json_text(const std::string& json, const char* name) {
  if (json.size() > kMaxTextBytes) {
    return invalid_argument(std::string(name) + " has " + std::to_string(json.size()) +
                                " bytes; the limit is " + std::to_string(kMaxTextBytes),
                            name);
  }
  // llama.cpp's JSON writer and its template engine recurse; deep nesting would end the process.
  if (is_nested_deeper(json, kMaxMessagesDepth)) {
    return invalid_argument(std::string(name) + " is nested deeper than " +
                                std::to_string(kMaxMessagesDepth) + " levels",
                            name);
  }
  return {};
}

std::string content_text(const common_chat_msg& message) {
  return message.content_parts.empty() ? message.content : message.render_content("\n");
}

common_json template_messages(std::vector<common_chat_msg> messages,
                              const AnalysedTemplate& analysed) {
  const chat_template_caps& caps = analysed.source.caps;
  for (common_chat_msg& message : messages) {
    if (analysed.renames_developer && message.role == "developer") {
      message.role = "system";
    }
  }
  if (!caps.supports_system_role) {
    fold_system(messages);
  }
  common_json list = common_json::array();
  for (const common_chat_msg& message : messages) {
    const bool joins = caps.supports_string_content && !caps.supports_typed_content;
    common_json json = message.to_json_oaicompat(joins);
    if (!caps.supports_string_content && json["content"].is_string()) {
      json["content"] = as_text_parts(json["content"].get<std::string>());
    }
    if (caps.supports_object_arguments) {
      parse_arguments(json);
    }
    list.push_back(json);
  }
  return list;
}

common_json special_messages(const common_json& messages, const AnalysedTemplate& analysed) {
  const std::string& source = analysed.source.source();
  const bool is_harmony = contains(source, "<|channel|>");
  const bool is_ministral = contains(source, "[SYSTEM_PROMPT]") && contains(source, "[ARGS]");
  common_json list = common_json::array();
  for (const common_json& message : messages) {
    common_json changed = message;
    const bool thinks = changed.contains("reasoning_content");
    if (is_ministral && (message.at("role") == "system" || message.at("role") == "assistant")) {
      changed = as_thinking_parts(message);
    } else if (thinks && contains(source, "thinking")) {
      changed["thinking"] = message.at("reasoning_content");
      if (is_harmony && changed.contains("tool_calls")) {
        changed.erase("content");
      }
    }
    list.push_back(changed);
  }
  return list;
}

}  // namespace graft
