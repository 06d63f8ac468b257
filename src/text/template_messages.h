// Messages of a request -> the JSON that a template reads. Included only by .cpp files of text/.
// Functions throw what llama.cpp's library throws.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "text/llama_chat.h"

namespace graft {

// Size and depth, before anything parses it.
Status check_json_text(const std::string& json, const char* name);

// The text of a message's content; parts are joined by newlines, as llama.cpp does.
std::string content_text(const common_chat_msg& message);

// With what the template does not know made into what it knows: roles, string or typed contents,
// arguments as text or as an object.
common_json template_messages(std::vector<common_chat_msg> messages,
                              const AnalysedTemplate& analysed);

// The same for a family whose llama.cpp parser first rewrites the messages.
common_json special_messages(const common_json& messages, const AnalysedTemplate& analysed);

}  // namespace graft
