// The answer format of a template with a syntax of its own (reasoning, tool calls), from
// llama.cpp's analysis or its parsers for special families. Included only by .cpp files of text/.
// Throws what llama.cpp's library throws.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/answer_format.h"
#include "text/llama_chat.h"

namespace graft {

// Analyses a template, once per model. Fails only if the template cannot be parsed.
std::unique_ptr<AnalysedTemplate> analyse(const std::string& source, const std::string& bos_token,
                                          const std::string& eos_token);

struct NativeAnswer {
  std::string prompt;             // as llama.cpp renders it
  std::string generation_prompt;  // its end, where the answer begins
  std::shared_ptr<const AnswerFormat> format;
};

// `params` as for llama.cpp, with the tools that may be called. Requires: a template with
// writes_tools or, without tools, has_syntax.
NativeAnswer make_native_answer(const AnalysedTemplate& analysed,
                                autoparser::generation_params params);

// The names of a tools array.
std::vector<std::string> tool_names(const common_json& tools);

}  // namespace graft
