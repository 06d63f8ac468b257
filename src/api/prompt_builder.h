// PromptBuilder: text and chat messages -> token ids, as the model's tokenizer and chat template
// say. Implemented over text/; a fake stands in for it in tests. Any thread, several at once.
#pragma once

#include <string>
#include <vector>

#include "api/generation_call.h"
#include "base/result.h"
#include "core/request.h"

namespace graft::api {

class PromptBuilder {
 public:
  virtual ~PromptBuilder() = default;
  // Errors: kInvalidArgument when the template refuses the messages.
  virtual Result<std::vector<TokenId>> from_messages(const ChatPrompt& prompt) const = 0;
  virtual Result<std::vector<TokenId>> from_text(const std::string& text) const = 0;
};

}  // namespace graft::api
