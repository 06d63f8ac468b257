// AnswerShape: what all objects of one answer have in common, and the JSON pieces made of it.
// Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/generation_call.h"
#include "core/chat_message.h"
#include "core/event.h"
#include "modules/module_version.h"

namespace graft::api {

struct AnswerShape {
  bool chat = true;  // chat.completion, else text_completion
  std::string id;    // "chatcmpl-..." or "cmpl-..."
  std::int64_t created_unix_s = 0;
  std::string model;                 // as the client named it
  std::string fingerprint;           // server version and base digest
  std::string graft_json;            // {"modules": [...]}: what shaped the answer
  std::int32_t n_choices = 1;        // in all: prompts x n
  std::int32_t n_per_prompt = 1;     // choice i answers prompt i / n_per_prompt
  std::int64_t n_prompt_tokens = 0;  // each prompt counted once, whatever n
  bool logprobs = false;
  std::int32_t n_logprobs = 0;      // alternatives per token
  std::vector<std::string> echoed;  // texts of the prompts, if the answers begin with them
  std::optional<std::int32_t> n_prompt_logprobs;  // alternatives in vLLM's list of the prompt
  bool include_usage = false;                     // streams only
  bool continuous_usage = false;
  ReportRules report;
  std::vector<std::vector<TokenId>> prompt_token_ids;  // only for report.token_ids

  // The text that choice `choice` begins with.
  const std::string& echo_of(std::size_t choice) const {
    static const std::string none;
    return echoed.empty() ? none : echoed[choice / static_cast<std::size_t>(n_per_prompt)];
  }
  // The prompt's tokens stand in the arrays of log-probabilities too.
  bool scores_echo() const { return !echoed.empty() && logprobs; }
};

// {"modules":[{"name":...,"version":digest,"scale":...}]}
std::string graft_object(const AttachmentSet& attachments);
// "name@digest12*scale, ..." for the header x-graft-modules; "" without modules.
std::string modules_header(const AttachmentSet& attachments);

// {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":... without closing brace.
std::string object_prefix(const AnswerShape& shape, bool chunk);
// `n_cached_tokens` of the prompt tokens came from the prefix cache.
std::string usage_object(std::int64_t n_prompt_tokens, std::int64_t n_completion_tokens,
                         std::int64_t n_cached_tokens);
// llama-server's numbers of a choice: tokens, milliseconds, rates.
std::string timings_object(const Finished& event);
// [1,2,3]
std::string token_array(std::span<const TokenId> tokens);
const char* finish_reason_name(FinishReason reason);

// The members of a delta or of a message, without braces: reasoning_content, content, tool_calls;
// those that `delta` has.
void append_delta_members(std::string& out, const ChatDelta& delta);
// `,"error":{...}` of a choice whose text could not be parsed to its end, or nothing.
void append_choice_error(std::string& out, const std::string& message);

}  // namespace graft::api
