#include "text/generic_tools.h"

#include <json-schema-to-grammar.h>
#include <json-schema.h>

#include <utility>

#include "text/native_format.h"
#include "text/template_messages.h"

namespace graft {
namespace {

constexpr const char* kIntroduction =
    "You can call functions. They are, as JSON schemas:\n<tools>\n";
constexpr const char* kHowToCall =
    "</tools>\nTo call a function, write a JSON object with its name and its arguments between "
    "these tags:\n";
constexpr const char* kMustCall = "\nAnswer with a call.";
// A small model that is made to call functions would not stop by itself.
constexpr const char* kMoreCalls = " (\"\\n\" call){0,7}";

std::string call_text(const std::string& name, const std::string& arguments) {
  std::string text(kCallOpen);
  text += "\n{\"name\": " + common_json(name).dump() + ", \"arguments\": " + arguments + "}\n";
  return text += kCallClose;
}

std::string tools_text(const common_json& tools, ToolChoice choice) {
  std::string text = kIntroduction;
  for (const common_json& tool : tools) {
    text += tool.dump() + "\n";
  }
  text += kHowToCall + call_text("the name", "{}");
  return choice == ToolChoice::kRequired ? text + kMustCall : text;
}

void write_as_text(common_chat_msg& message) {
  std::string text = content_text(message);
  if (message.role == "tool") {
    message.role = "user";
    text = "<tool_response>\n" + text + "\n</tool_response>";
  }
  for (const common_chat_tool_call& call : message.tool_calls) {
    text += (text.empty() ? "" : "\n") +
            call_text(call.name, call.arguments.empty() ? "{}" : call.arguments);
  }
  message.content = std::move(text);
  message.content_parts.clear();
  message.tool_calls.clear();
  message.tool_call_id.clear();
  message.tool_name.clear();
}

// Results of several calls are one user message: templates want roles that take turns.
void join_results(std::vector<common_chat_msg>& messages, const std::vector<bool>& is_result) {
  std::vector<common_chat_msg> joined;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (is_result[i] && i > 0 && is_result[i - 1]) {
      joined.back().content += "\n" + messages[i].content;
    } else {
      joined.push_back(std::move(messages[i]));
    }
  }
  messages = std::move(joined);
}

void add_to_system(std::vector<common_chat_msg>& messages, std::string text) {
  const std::string role = messages.empty() ? "" : messages.front().role;
  if (role == "system" || role == "developer") {
    common_chat_msg& system = messages.front();
    system.content = content_text(system) + "\n\n" + text;
    system.content_parts.clear();
    return;
  }
  common_chat_msg system;
  system.role = "system";
  system.content = std::move(text);
  messages.insert(messages.begin(), std::move(system));
}

std::string call_grammar(const common_json& tools, bool parallel) {
  return build_grammar([&](const common_grammar_builder& builder) {
    std::string choices;
    std::size_t n_tools = 0;
    for (const common_json& tool : tools) {
      const common_json& function = tool.at("function");
      const std::string rule = "tool-" + std::to_string(n_tools++);
      const auto schema = common_chat_schema_from_json(common_chat_tool_parameters(function));
      const std::string arguments = builder.add_schema(rule + "-args", *schema.root);
      const std::string name = common_json(function.at("name").get<std::string>()).dump();
      builder.add_rule(rule, gbnf_format_literal("{\"name\": " + name + ", \"arguments\": ") + " " +
                                 arguments + " \"}\"");
      choices += (choices.empty() ? "" : " | ") + rule;
    }
    builder.add_rule("call", gbnf_format_literal(std::string(kCallOpen)) + " \"\\n\"? ( " +
                                 choices + " ) \"\\n\"? " +
                                 gbnf_format_literal(std::string(kCallClose)));
    builder.add_rule("root", std::string("call") + (parallel ? kMoreCalls : ""));
  });
}

}  // namespace

void write_generic_tools(std::vector<common_chat_msg>& messages, const common_json& tools,
                         ToolChoice choice) {
  std::vector<bool> is_result;
  for (common_chat_msg& message : messages) {
    is_result.push_back(message.role == "tool");
    if (message.role == "tool" || !message.tool_calls.empty()) {
      write_as_text(message);
    }
  }
  join_results(messages, is_result);
  if (tools.is_array() && !tools.empty()) {
    add_to_system(messages, tools_text(tools, choice));
  }
}

std::shared_ptr<const AnswerFormat> make_generic_answer(const common_json& tools, ToolChoice choice,
                                                        bool parallel) {
  auto format = std::make_shared<AnswerFormat>();
  format->grammar = call_grammar(tools, parallel);
  if (choice == ToolChoice::kAuto) {
    format->triggers.push_back({std::string(kCallOpen), false});
  }
  format->shown_texts = {std::string(kCallOpen), std::string(kCallClose)};
  format->syntax = make_generic_syntax(tool_names(tools));
  return format;
}

}  // namespace graft
