#include "api/text_prompt_builder.h"

#include <utility>

namespace graft::api {

Result<std::vector<TokenId>> TextPromptBuilder::from_messages(const ChatPrompt& prompt) const {
  if (chat_template_ == nullptr) {
    return not_supported("The model has no chat template; use /v1/completions.");
  }
  RenderOptions options;
  options.add_generation_prompt = prompt.add_generation_prompt;
  options.continue_final_message = prompt.continue_final_message;
  auto rendered = chat_template_->render(prompt.messages_json, options);
  if (!rendered) {
    Error error = std::move(rendered).error();
    error.param = "messages";
    return error;
  }
  return tokenize(vocabulary_, *rendered, allow_special_in_input_);
}

Result<std::vector<TokenId>> TextPromptBuilder::from_text(const std::string& text) const {
  TokenizeOptions options;
  options.parse_special = true;
  return vocabulary_.tokenize(text, options);
}

}  // namespace graft::api
