// chat_template_kwargs: which keys a request may hand to a template (CVE-2025-62426: in vLLM they
// could replace the messages). Included only by .cpp files of text/; throws nothing.
#pragma once

#include <string>

#include "base/result.h"
#include "text/llama_chat.h"

namespace graft {

inline constexpr std::size_t kMaxKwargsBytes = std::size_t{64} << 10;
inline constexpr int kMaxKwargsDepth = 16;

// `json` ("" or an object) as checked JSON. Allowed are enable_thinking (boolean),
// reasoning_effort (string), preserve_reasoning (boolean), and names that the template's source
// reads, except those that we set or that stand for messages, tools or functions of the template
// language. The error names the key.
Result<common_json> read_template_kwargs(const std::string& json,
                                         const common_chat_template& source);

}  // namespace graft
