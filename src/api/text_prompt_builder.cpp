#include "api/text_prompt_builder.h"

#include <utility>

namespace graft::api {

Result<RenderedChat> TextPromptBuilder::render_parts(const ChatPrompt& prompt) const {
  if (chat_template_ == nullptr) {
    return not_supported("The model has no chat template; use /v1/completions.");
  }
  ChatRequest request;
  request.messages_json = prompt.messages_json;
  request.tools_json = prompt.tools_json;
  request.tool_choice = prompt.tool_choice;
  request.named_tool = prompt.named_tool;
  request.parallel_tool_calls = prompt.parallel_tool_calls;
  request.template_kwargs_json = prompt.template_kwargs_json;
  request.options.add_generation_prompt = prompt.add_generation_prompt;
  request.options.continue_final_message = prompt.continue_final_message;
  return chat_template_->render(request);
}

Result<BuiltChat> TextPromptBuilder::from_chat(const ChatPrompt& prompt,
                                               std::optional<std::string_view> owner) const {
  GRAFT_ASSIGN_OR_RETURN(RenderedChat rendered, render_parts(prompt));
  std::optional<OwnedMemo> memo;
  if (owner) memo = OwnedMemo{&memo_, *owner};
  BuiltChat built;
  GRAFT_ASSIGN_OR_RETURN(
      built.tokens, graft::tokenize(vocabulary_, rendered.prompt, allow_special_in_input_, memo));
  if (rendered.format != nullptr) {
    built.shown_tokens = hidden_tokens(rendered.format->shown_texts);
    built.format = std::move(rendered.format);
  }
  return built;
}

// Those of `texts` that are control tokens of the vocabulary.
std::vector<TokenId> TextPromptBuilder::hidden_tokens(const std::vector<std::string>& texts) const {
  std::vector<TokenId> found;
  for (const std::string& text : texts) {
    const auto tokens = vocabulary_.tokenize(text, {.add_special = false, .parse_special = true});
    const bool is_one = tokens && tokens->size() == 1;
    if (is_one && vocabulary_.visible_piece(tokens->front(), false).empty()) {
      found.push_back(tokens->front());
    }
  }
  return found;
}

Result<std::string> TextPromptBuilder::render(const ChatPrompt& prompt) const {
  GRAFT_ASSIGN_OR_RETURN(const RenderedChat rendered, render_parts(prompt));
  return rendered.prompt.text();
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
