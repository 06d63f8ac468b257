// PromptBuilder: text and chat messages -> token ids, and back, as the model's tokenizer and chat
// template say. Implemented over text/; a fake stands in for it in tests. Any thread, several at
// once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/generation_call.h"
#include "base/result.h"
#include "core/request.h"
#include "text/answer_format.h"

namespace graft::api {

struct TextOptions {
  bool add_special = true;    // begin (and end) tokens that the model asks for
  bool parse_special = true;  // control tokens written in the text count
};

// A chat's prompt, and how its answer is written.
struct BuiltChat {
  std::vector<TokenId> tokens;
  std::shared_ptr<const AnswerFormat> format;  // null: free text
  std::vector<TokenId> shown_tokens;           // control tokens that are part of the format
};

class PromptBuilder {
 public:
  virtual ~PromptBuilder() = default;
  // Errors: kInvalidArgument when the template refuses the messages, the tools or a keyword.
  // `owner`: for whom work may be remembered and found again; nothing = for nobody.
  virtual Result<BuiltChat> from_chat(const ChatPrompt& prompt,
                                      std::optional<std::string_view> owner) const = 0;
  // The text that from_chat() tokenises.
  virtual Result<std::string> render(const ChatPrompt& prompt) const = 0;
  virtual Result<std::vector<TokenId>> tokenize(const std::string& text,
                                                const TextOptions& options) const = 0;
  // The bytes of the tokens in a row, control tokens included; perhaps not whole UTF-8. Requires:
  // ids in the vocabulary.
  virtual std::string detokenize(std::span<const TokenId> tokens) const = 0;

  // A chat's tokens alone, to count them.
  Result<std::vector<TokenId>> from_messages(const ChatPrompt& prompt) const {
    GRAFT_ASSIGN_OR_RETURN(BuiltChat built, from_chat(prompt, std::nullopt));
    return std::move(built.tokens);
  }

  // A completion's prompt is the client's own: control tokens in it count.
  Result<std::vector<TokenId>> from_text(const std::string& text) const {
    return tokenize(text, TextOptions{});
  }
};

}  // namespace graft::api
