#include "api/parse_tools.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "api/fields.h"
#include "api/json_slice.h"
#include "text/gbnf.h"
#include "text/json_schema_grammar.h"

namespace graft::api {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxToolNameBytes = 64;

template <typename AnyJson>
const AnyJson* find_in(const AnyJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

template <typename AnyJson>
bool is_string(const AnyJson* value) {
  return value != nullptr && value->is_string();
}

// The older form; its answers have another shape, which clients of today do not read.
Status refuse_functions(const Json& json) {
  for (const char* name : {"functions", "function_call"}) {
    const Json* value = find_field(json, name);
    if (value == nullptr || value->empty() || *value == "none") continue;
    return Error{ErrorCode::kNotSupported,
                 "'" + std::string(name) +
                     "' is the older form of tools and is not supported; send 'tools' "
                     "([{\"type\":\"function\",\"function\":{...}}]) and 'tool_choice'.",
                 name};
  }
  return {};
}

// What of a schema cannot be enforced is an error if the tool is strict; what is no schema, or
// beyond the limits of schemas, always.
Status check_schema(const OrderedJson& schema, bool strict, const std::string& param) {
  const std::string text = schema.dump();
  if (text.size() > kMaxConstraintBytes) {
    return invalid_argument(
        "'" + param + "' is longer than " + std::to_string(kMaxConstraintBytes) + " bytes.", param);
  }
  const auto grammar = json_schema_to_gbnf(text, !strict);
  if (grammar) return {};
  return Error{grammar.error().code, "'" + param + "': " + grammar.error().message + ".", param};
}

Result<OrderedJson> read_function(const OrderedJson& tool, const std::string& param) {
  const OrderedJson* type = tool.is_object() ? find_in(tool, "type") : nullptr;
  if (!is_string(type)) return must_be(param, "an object with a string 'type'");
  if (*type != "function") {
    return Error{ErrorCode::kNotSupported,
                 "'" + param + ".type': only tools of type 'function' are supported.",
                 param + ".type"};
  }
  const OrderedJson* function = find_in(tool, "function");
  if (function == nullptr || !function->is_object())
    return must_be(param + ".function", "an object");
  const OrderedJson* name = find_in(*function, "name");
  if (!is_string(name) || !is_tool_name(name->get_ref<const std::string&>())) {
    return must_be(param + ".function.name", kToolNameRule);
  }
  OrderedJson read = {{"name", *name}, {"description", ""}};
  if (const OrderedJson* description = find_in(*function, "description")) {
    if (!description->is_string()) return must_be(param + ".function.description", "a string");
    read["description"] = *description;
  }
  read["parameters"] = OrderedJson{{"type", "object"}, {"properties", OrderedJson::object()}};
  if (const OrderedJson* parameters = find_in(*function, "parameters")) {
    if (!parameters->is_object()) {
      return must_be(param + ".function.parameters", "a JSON schema that is an object");
    }
    if (!parameters->empty()) read["parameters"] = *parameters;
  }
  const OrderedJson* strict = find_in(*function, "strict");
  if (strict != nullptr && !strict->is_boolean()) {
    return must_be(param + ".function.strict", "true or false");
  }
  GRAFT_RETURN_IF_ERROR(check_schema(read["parameters"], strict != nullptr && strict->get<bool>(),
                                     param + ".function.parameters"));
  return OrderedJson{{"type", "function"}, {"function", std::move(read)}};
}

// The names of the tools; `text` becomes the checked list.
Result<std::set<std::string>> read_tool_list(std::string_view body, std::string& text) {
  // It was parsed before. A key written with escapes is found by parsing all of it again.
  const std::string_view slice = slice_json(body, {"tools"});
  const OrderedJson tools =
      slice.empty() ? OrderedJson::parse(body).at("tools") : OrderedJson::parse(slice);
  if (tools.size() > kMaxTools) {
    return invalid_argument("'tools' has more than " + std::to_string(kMaxTools) + " entries.",
                            "tools");
  }
  OrderedJson read = OrderedJson::array();
  std::set<std::string> names;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string param = element("tools", i);
    GRAFT_ASSIGN_OR_RETURN(OrderedJson tool, read_function(tools[i], param));
    if (!names.insert(tool["function"]["name"].get<std::string>()).second) {
      return invalid_argument("'" + param + ".function.name' is the name of an earlier tool.",
                              param + ".function.name");
    }
    read.push_back(std::move(tool));
  }
  text = read.dump();
  if (text.size() > kMaxToolsBytes) {
    return invalid_argument("'tools' is longer than " + std::to_string(kMaxToolsBytes) + " bytes.",
                            "tools");
  }
  return names;
}

Status read_named_choice(const Json& choice, const std::set<std::string>& names,
                         ChatPrompt& prompt) {
  const Json* type = choice.is_object() ? find_field(choice, "type") : nullptr;
  const Json* function = choice.is_object() ? find_field(choice, "function") : nullptr;
  if (type == nullptr || *type != "function" || function == nullptr || !function->is_object()) {
    return must_be("tool_choice",
                   "\"none\", \"auto\", \"required\" or "
                   "{\"type\":\"function\",\"function\":{\"name\":...}}");
  }
  const Json* name = find_field(*function, "name");
  if (name == nullptr || !name->is_string() || !names.contains(name->get<std::string>())) {
    return must_be("tool_choice.function.name", "the name of one of the 'tools'");
  }
  prompt.named_tool = name->get<std::string>();
  prompt.tool_choice = ToolChoice::kRequired;
  return {};
}

Status read_choice(const Json& json, const std::set<std::string>& names, ChatPrompt& prompt) {
  const Json* choice = find_field(json, "tool_choice");
  prompt.tool_choice = names.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  if (choice == nullptr || *choice == "auto") return {};
  if (*choice == "none") {
    prompt.tool_choice = ToolChoice::kNone;
    return {};
  }
  if (names.empty()) {
    return invalid_argument("'tool_choice' asks for a call, but there are no 'tools'.",
                            "tool_choice");
  }
  if (*choice == "required") {
    prompt.tool_choice = ToolChoice::kRequired;
    return {};
  }
  return read_named_choice(*choice, names, prompt);
}

// Both would say what the answer must look like.
Status refuse_constraints(const Json& json) {
  for (const char* name : {"grammar", "json_schema", "structured_outputs", "guided_json",
                           "guided_regex", "guided_choice", "guided_grammar", "response_format"}) {
    const Json* value = find_field(json, name);
    if (value == nullptr || value->empty() || *value == "") continue;
    if (value->is_object() && value->contains("type") && (*value)["type"] == "text") continue;
    return invalid_argument("'" + std::string(name) +
                                "' cannot be combined with 'tools'; send tool_choice \"none\", or "
                                "leave one of them out.",
                            name);
  }
  return {};
}

}  // namespace

bool is_tool_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxToolNameBytes &&
         std::all_of(name.begin(), name.end(), fits);
}

Status read_tools(std::string_view body, const Json& json, ChatPrompt& prompt) {
  GRAFT_RETURN_IF_ERROR(refuse_functions(json));
  std::set<std::string> names;
  const Json* tools = find_field(json, "tools");
  if (tools != nullptr && !tools->empty()) {
    GRAFT_ASSIGN_OR_RETURN(names, read_tool_list(body, prompt.tools_json));
  }
  GRAFT_RETURN_IF_ERROR(read_choice(json, names, prompt));
  if (const Json* parallel = find_field(json, "parallel_tool_calls")) {
    prompt.parallel_tool_calls = parallel->get<bool>();
  }
  if (prompt.tool_choice == ToolChoice::kNone) {
    prompt.tools_json.clear();  // the model is not shown what it may not call
    return {};
  }
  return refuse_constraints(json);
}

Status read_template_kwargs(const Json& json, ChatPrompt& prompt) {
  Json kwargs = Json::object();
  if (const Json* given = find_field(json, "chat_template_kwargs")) kwargs = *given;
  const Json* effort = find_field(json, "reasoning_effort");
  if (effort != nullptr) {
    static constexpr std::array<std::string_view, 6> kEfforts = {"none",   "minimal", "low",
                                                                 "medium", "high",    "xhigh"};
    if (std::find(kEfforts.begin(), kEfforts.end(), effort->get_ref<const std::string&>()) ==
        kEfforts.end()) {
      return invalid_argument(
          "'reasoning_effort' must be one of none, minimal, low, medium, high, xhigh.",
          "reasoning_effort");
    }
    if (*effort == "none") {
      kwargs.emplace("enable_thinking", false);
    } else {
      kwargs.emplace("reasoning_effort", *effort);
    }
  }
  if (!kwargs.empty()) prompt.template_kwargs_json = kwargs.dump();
  return {};
}

}  // namespace graft::api
