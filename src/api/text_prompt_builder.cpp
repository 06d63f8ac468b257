#include "api/text_prompt_builder.h"

#include <utility>

namespace graft::api {

Result<RenderedPrompt> TextPromptBuilder::render_parts(const ChatPrompt& prompt) const {
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
  return rendered;
}

Result<std::vector<TokenId>> TextPromptBuilder::from_messages(const ChatPrompt& prompt) const {
  GRAFT_ASSIGN_OR_RETURN(const RenderedPrompt rendered, render_parts(prompt));
  return graft::tokenize(vocabulary_, rendered, allow_special_in_input_);
}

Result<std::string> TextPromptBuilder::render(const ChatPrompt& prompt) const {
  GRAFT_ASSIGN_OR_RETURN(const RenderedPrompt rendered, render_parts(prompt));
  return rendered.text();
}

Result<std::vector<TokenId>> TextPromptBuilder::tokenize(const std::string& text,
                                                         const TextOptions& options) const {
  return vocabulary_.tokenize(
      text, {.add_special = options.add_special, .parse_special = options.parse_special});
}

std::string TextPromptBuilder::detokenize(std::span<const TokenId> tokens) const {
  return vocabulary_.detokenize(tokens, true);
}

}  // namespace graft::api
