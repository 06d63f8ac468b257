#include "text/template_kwargs.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "text/json_nesting.h"

namespace graft {
namespace {

constexpr const char* kParam = "chat_template_kwargs";

// What we set, names under which templates look for tools, and the template language's own words.
constexpr std::array<std::string_view, 36> kReserved = {"messages",
                                                        "tools",
                                                        "custom_tools",
                                                        "builtin_tools",
                                                        "functions",
                                                        "bos_token",
                                                        "eos_token",
                                                        "datetime",
                                                        "date_string",
                                                        "add_generation_prompt",
                                                        "chat_template",
                                                        "tool_choice",
                                                        "raise_exception",
                                                        "strftime_now",
                                                        "namespace",
                                                        "range",
                                                        "loop",
                                                        "caller",
                                                        "self",
                                                        "super",
                                                        "true",
                                                        "false",
                                                        "none",
                                                        "True",
                                                        "False",
                                                        "None",
                                                        "not",
                                                        "and",
                                                        "or",
                                                        "in",
                                                        "is",
                                                        "if",
                                                        "else",
                                                        "for",
                                                        "set",
                                                        "cycler"};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Whether `name` stands in the template as a word of its own that is no member or string key.
bool reads(const std::string& source, const std::string& name) {
  for (std::size_t at = source.find(name); at != std::string::npos;
       at = source.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const char before = at == 0 ? ' ' : source[at - 1];
    const char after = end == source.size() ? ' ' : source[end];
    if (!is_word(before) && before != '.' && before != '\'' && before != '"' && !is_word(after)) {
      return true;
    }
  }
  return false;
}

Error refused(const std::string& key, const std::string& why) {
  return invalid_argument("'" + std::string(kParam) + "." + key + "' " + why + ".",
                          std::string(kParam) + "." + key);
}

Status check_key(const std::string& key, const common_json& value,
                 const common_chat_template& source) {
  const bool is_name =
      !key.empty() && key.size() <= 64 && std::all_of(key.begin(), key.end(), is_word);
  if (!is_name) {
    return invalid_argument("'chat_template_kwargs' has a key that is no name of up to 64 letters.",
                            kParam);
  }
  if (key == "enable_thinking" || key == "preserve_reasoning") {
    return value.is_boolean() ? Status() : refused(key, "must be true or false");
  }
  if (key == "reasoning_effort") {
    const bool fits = value.is_string() && value.get<std::string>().size() <= 32;
    return fits ? Status() : refused(key, "must be a string of up to 32 bytes");
  }
  if (std::find(kReserved.begin(), kReserved.end(), key) != kReserved.end()) {
    return refused(key, "is set by the server and cannot be given");
  }
  if (!reads(source.source(), key)) {
    return refused(key, "is nothing that this model's chat template reads");
  }
  return {};
}

}  // namespace

Result<common_json> read_template_kwargs(const std::string& json,
                                         const common_chat_template& source) {
  if (json.empty()) {
    return common_json::object();
  }
  if (json.size() > kMaxKwargsBytes || is_nested_deeper(json, kMaxKwargsDepth)) {
    return invalid_argument("'chat_template_kwargs' is longer than " +
                                std::to_string(kMaxKwargsBytes) + " bytes or deeper than " +
                                std::to_string(kMaxKwargsDepth) + " levels.",
                            kParam);
  }
  return guarded(ErrorCode::kInvalidArgument, "'chat_template_kwargs' cannot be read", kParam,
                 [&]() -> Result<common_json> {
                   common_json kwargs = common_json::parse(json);
                   if (!kwargs.is_object()) {
                     return invalid_argument("'chat_template_kwargs' must be an object.", kParam);
                   }
                   for (const auto& [key, value] : kwargs.items()) {
                     GRAFT_RETURN_IF_ERROR(check_key(key, value, source));
                   }
                   return kwargs;
                 });
}

}  // namespace graft
