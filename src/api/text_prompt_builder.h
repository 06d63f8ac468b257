// TextPromptBuilder: the PromptBuilder of a loaded model, over its vocabulary and chat template.
// Borrows both; any thread, several at once.
#pragma once

#include "api/prompt_builder.h"
#include "text/chat_template.h"
#include "text/token_memo.h"
#include "text/vocabulary.h"

namespace graft::api {

class TextPromptBuilder : public PromptBuilder {
 public:
  // `chat_template` is null for a model without one. `allow_special_in_input`: control tokens
  // written in a chat message are control tokens.
  TextPromptBuilder(const Vocabulary& vocabulary, const ChatTemplate* chat_template,
                    bool allow_special_in_input)
      : vocabulary_(vocabulary),
        chat_template_(chat_template),
        allow_special_in_input_(allow_special_in_input) {}

  Result<BuiltChat> from_chat(const ChatPrompt& prompt,
                              std::optional<std::string_view> owner) const override;
  Result<std::string> render(const ChatPrompt& prompt) const override;
  Result<std::vector<TokenId>> tokenize(const std::string& text,
                                        const TextOptions& options) const override;
  std::string detokenize(std::span<const TokenId> tokens) const override;

 private:
  Result<RenderedChat> render_parts(const ChatPrompt& prompt) const;
  std::vector<TokenId> hidden_tokens(const std::vector<std::string>& texts) const;

  const Vocabulary& vocabulary_;
  const ChatTemplate* const chat_template_;
  const bool allow_special_in_input_;
  mutable TokenMemo memo_;
};

}  // namespace graft::api
