// A generation request after validation, as the scheduler sees it. Plain values; no I/O, no
// threads. Ranges are checked by api/ before such a value exists; the limits stand beside the
// fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace graft {

using TokenId = std::int32_t;
using RequestId = std::uint64_t;

struct SamplingParams {
  float temperature = 1.0F;          // 0 = greedy
  std::int32_t top_k = 0;            // 0 = off
  float top_p = 1.0F;                // (0, 1]
  float min_p = 0.0F;                // [0, 1]
  float repetition_penalty = 1.0F;   // > 0; 1 = off (CTRL, arXiv:1909.05858)
  float frequency_penalty = 0.0F;    // [-2, 2]
  float presence_penalty = 0.0F;     // [-2, 2]
  std::int32_t penalty_last_n = 64;  // tokens that penalties look back at; 0 = none
  std::optional<std::uint32_t> seed = {};
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // ids in the vocabulary; finite
  std::vector<TokenId> allowed_tokens = {};                // no others are chosen; empty = all
  // Sequences that the answer never holds: their last token is not chosen behind the others. None
  // is empty; at most 256 tokens together.
  std::vector<std::vector<TokenId>> banned_sequences = {};
  // Top alternatives reported per token, of the raw distribution: nothing = no log-probabilities,
  // 0 = the chosen token's only. At most 20.
  std::optional<std::int32_t> n_logprobs = {};
};

struct StopRules {
  std::int32_t max_tokens = -1;  // -1 = until the context ends; 0 = the prompt alone is computed
  std::int32_t min_tokens = 0;   // end-of-generation tokens are suppressed before that many
  bool ignore_eos = false;
  std::vector<std::string> strings;  // never empty strings
  bool keeps_string = false;         // the stop string is part of the answer's text
  std::vector<TokenId> token_ids;
};

// One element of a request's module selection, before it is resolved against the registry.
struct ModuleChoice {
  std::string name;                   // used unless `index` is set
  std::optional<std::int64_t> index;  // llama-server's `lora: [{"id": ...}]`: position in the list
  float scale = 1.0F;                 // finite
};

// How the states of a prompt's tokens become one embedding.
enum class Pooling : std::uint8_t { kMean, kLast };

// What a request may share with others through the prefix cache. Only requests of equal tenant and
// salt share anything: a salt narrows, it never opens another tenant's entries.
struct PrefixCacheRules {
  std::string salt;  // at most 256 bytes
  bool may_read = true;
  bool may_write = true;
};

struct GenerationRequest {
  RequestId id = 0;
  std::vector<TokenId> prompt;  // not empty, shorter than the context, ids in the vocabulary
  SamplingParams sampling;
  StopRules stop;
  // Top alternatives reported per token of the prompt: nothing = the prompt is not scored, 0 = its
  // own tokens only. At most 20.
  std::optional<std::int32_t> n_prompt_logprobs = {};
  bool reports_end = false;  // the token that ends the answer is sent too (TokenOutput::ends)
  std::optional<Pooling> embedding = {};  // the answer is an embedding; max_tokens must be 0
  PrefixCacheRules prefix_cache;
  bool shows_special = false;  // control tokens are part of the answer's text
  // Control tokens whose text is part of the answer: the marks of a tool call, say.
  std::vector<TokenId> shown_tokens = {};
};

}  // namespace graft
