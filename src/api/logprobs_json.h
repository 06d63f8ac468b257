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

// Completions: arrays of all tokens since the last take().
class CompletionLogprobs {
 public:
  // `as_ids`: tokens are named "token_id:N".
  explicit CompletionLogprobs(bool as_ids = false) : as_ids_(as_ids) {}

  void add(const TokenOutput& token);
  // {"tokens":[...],"token_logprobs":[...],"top_logprobs":[...],"text_offset":[...]}; starts anew.
  std::string take();

 private:
  bool as_ids_;
  std::string tokens_;
  std::string logprobs_;
  std::string top_;
  std::string offsets_;
  std::int64_t n_characters_ = 0;  // of the text so far, over all takes
};

}  // namespace graft::api
