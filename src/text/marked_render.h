// Runs a template over JSON and keeps which parts of the prompt came from the request. Included
// only by .cpp files of text/. Throws what llama.cpp's library throws.
#pragma once

#include <vector>

#include "text/chat_template.h"
#include "text/llama_chat.h"

namespace graft {

// All that a template may read.
struct TemplateInput {
  common_json messages;
  common_json tools;   // null or an array
  common_json kwargs;  // null or an object; keys checked
  bool add_generation_prompt = true;
};

std::vector<PromptPart> render_marked(const common_chat_template& source,
                                      const TemplateInput& input);

// "datetime" and "date_string", as llama.cpp gives them.
common_json date_values();

}  // namespace graft
