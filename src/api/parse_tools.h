// Tools of a chat request: the list, the choice among them, and what else shapes the template.
// Each function fills its part of the prompt from a body that check_fields() has passed, or says
// what is wrong.
#pragma once

#include <string_view>

#include "api/generation_call.h"
#include "api/request_json.h"
#include "base/result.h"

namespace graft::api {

constexpr std::size_t kMaxTools = 128;
constexpr std::size_t kMaxToolsBytes = std::size_t{256} << 10;

// `body` is the text of `json`: the order of a schema's properties is that of the arguments, and
// Json does not keep it.
Status read_tools(std::string_view body, const Json& json, ChatPrompt& prompt);
// chat_template_kwargs and reasoning_effort.
Status read_template_kwargs(const Json& json, ChatPrompt& prompt);

// What a tool may be called, in words.
inline constexpr const char* kToolNameRule =
    "1 to 64 letters, digits, dots, hyphens and underscores";
bool is_tool_name(std::string_view name);

}  // namespace graft::api
