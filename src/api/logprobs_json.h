// Log-probabilities as clients read them: a list of objects for chat, parallel arrays for
// completions. Used by one strand.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/event.h"

namespace graft::api {

// One element of chat's logprobs.content. `as_ids`: tokens are named "token_id:N".
void append_chat_logprob(std::string& out, const TokenOutput& token, bool as_ids = false);

// One element of vLLM's prompt_logprobs: null for the first token, else an object by token id with
// the token itself and at most `n_top` alternatives.
void append_prompt_logprob(std::string& out, const PromptToken& token, std::int32_t n_top);

// Completions: arrays of all tokens since the last take().
class CompletionLogprobs {
 public:
  // `as_ids`: tokens are named "token_id:N". `n_echoed`: characters of the text before the first
  // generated token.
  explicit CompletionLogprobs(bool as_ids = false, std::int64_t n_echoed = 0)
      : as_ids_(as_ids), n_characters_(n_echoed) {}

  void add(const TokenOutput& token);
  // A token of an echoed prompt, with at most `n_top` alternatives.
  void add(const PromptToken& token, std::int32_t n_top);
  // {"tokens":[...],"token_logprobs":[...],"top_logprobs":[...],"text_offset":[...]}; starts anew.
  std::string take();

 private:
  void add_entry(const TokenLogprob& token, std::span<const TokenLogprob> top, std::int64_t offset);

  bool as_ids_;
  std::string tokens_;
  std::string logprobs_;
  std::string top_;
  std::string offsets_;
  std::int64_t n_prompt_characters_ = 0;
  std::int64_t n_characters_ = 0;  // of the text so far, over all takes
};

}  // namespace graft::api
