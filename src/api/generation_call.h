// GenerationCall: what a client asked for in /v1/chat/completions or /v1/completions, typed and
// validated, with names and prompts still unresolved. Plain values; no JSON beyond this point.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "core/request.h"
#include "text/chat_template.h"
#include "text/constraint_source.h"

namespace graft::api {

// What the API must know of the model and the server's limits.
struct ModelFacts {
  std::int32_t n_context_tokens = 0;  // longest prompt and answer of one request
  std::int32_t n_vocab = 0;
  std::int32_t max_choices = 16;    // prompts x n of one call; the number of live sequences
  std::string base_digest;          // hex, or "" when not computed
  std::int64_t created_unix_s = 0;  // when the model was loaded
  // Of a chat answer whose request names no limit; -1 = until the context ends.
  std::int32_t default_max_tokens = -1;
  std::int32_t n_sequences = 1;  // that can run at once
  std::string model_file;        // its name, without the folder
  std::string chat_template;     // its source; "" = none
  std::string bos_token;         // texts; "" = none
  std::string eos_token;
  std::int32_t n_embedding_values = 0;  // 0 = the model cannot make embeddings
  Pooling pooling = Pooling::kMean;
};

struct ChatPrompt {
  // JSON array: role, content (string or text parts); name, reasoning_content, tool_calls and
  // tool_call_id where they were given.
  std::string messages_json;
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last message is the beginning of the answer
  std::string tools_json;               // JSON array in the client's order of keys; "" = no tools
  ToolChoice tool_choice = ToolChoice::kNone;  // kNone without tools
  std::string named_tool;                      // the one that must be called, or ""
  bool parallel_tool_calls = true;
  std::string template_kwargs_json;  // an object or ""
};

// A text to be tokenised, or token ids inside the vocabulary.
using TextPrompt = std::variant<std::string, std::vector<TokenId>>;

// What an answer reports beside its text.
struct ReportRules {
  bool token_ids = false;      // of the prompt and the answer, as vLLM does
  bool tokens = false;         // of the answer, as llama-server does
  bool tokens_as_ids = false;  // log-probabilities name tokens "token_id:N"
  bool timings = false;
};

struct GenerationCall {
  std::string model;  // "" = not given: the base
  std::vector<ModuleChoice> modules;
  std::optional<ChatPrompt> chat;              // chat only
  std::vector<TextPrompt> prompts;             // completions only
  std::optional<ConstraintSource> constraint;  // what the answer must look like
  std::string constraint_param;                // the field that says so
  SamplingParams sampling;
  StopRules stop;
  PrefixCacheRules prefix_cache;
  std::vector<std::string> bad_words;
  bool shows_special = false;               // control tokens are part of the answer's text
  bool add_special = true;                  // to a text prompt, what the model asks for
  std::int32_t truncate_prompt_tokens = 0;  // keep that many at the end; -1: what fits; 0: all
  ReportRules report;
  bool echo = false;  // completions only: the answer's text begins with the prompt
  std::optional<std::int32_t> n_prompt_logprobs;  // vLLM's list of them
  std::int32_t n_choices = 1;                     // per prompt
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
};

// Errors: kInvalidArgument and kNotSupported, naming the field in `param`.
Result<GenerationCall> parse_chat_call(std::string_view body, const ModelFacts& facts);
Result<GenerationCall> parse_completions_call(std::string_view body, const ModelFacts& facts);

}  // namespace graft::api
