// Tools for a template that knows none: a text for the system message that lists them and says how
// to call one, history in the same form, a grammar for calls, and their parser. A call is
//
//   <tool_call>
//   {"name": NAME, "arguments": OBJECT}
//   </tool_call>
//
// Included only by .cpp files of text/. The first three throw what llama.cpp's library throws.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_format.h"
#include "text/chat_template.h"
#include "text/llama_chat.h"

namespace graft {

inline constexpr std::string_view kCallOpen = "<tool_call>";
inline constexpr std::string_view kCallClose = "</tool_call>";

// Calls and tool results in `messages` become text of assistant and user messages. With `tools`, an
// array that is not empty, the system message (the first, or a new one) gets the list.
void write_generic_tools(std::vector<common_chat_msg>& messages, const common_json& tools,
                         ToolChoice choice);

// `tools`: those that may be called. Requires: kAuto or kRequired.
std::shared_ptr<const AnswerFormat> make_generic_answer(const common_json& tools, ToolChoice choice,
                                                        bool parallel);

// The parser alone.
std::shared_ptr<const AnswerSyntax> make_generic_syntax(std::vector<std::string> tool_names);

}  // namespace graft
