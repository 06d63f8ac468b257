// What a running request sends back. Events of one request arrive in order: Started, then the parts
// of its scored prompt or its Embedding if it asked for them, then Tokens, then exactly one
// Finished or Failed. Plain values; they cross threads inside sinks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "core/request.h"

namespace graft {

struct TokenLogprob {
  TokenId token = 0;
  std::string bytes;     // the token's raw bytes, perhaps not whole UTF-8
  float logprob = 0.0F;  // natural log, raw distribution
};

struct Started {
  std::int32_t n_prompt_tokens = 0;
  std::int32_t n_cached_tokens = 0;  // of the prompt, taken from the prefix cache
};

// A token of the prompt. Its text is what became certain with it, as of a generated token.
struct PromptToken {
  TokenLogprob token;     // the first one's log-probability means nothing: nothing stands before it
  std::int32_t rank = 0;  // 1 = the likeliest; 0 = the first token
  std::string text;
  std::vector<TokenLogprob> top_logprobs;  // descending
};

// The next tokens of a scored prompt, in order. Together the parts hold each token once.
struct PromptScored {
  std::vector<PromptToken> tokens;
};

struct Embedded {
  std::vector<float> values;  // of length 1 in the Euclidean norm
};

// A generated token. `text` is what became certain with it: whole UTF-8 characters only, never part
// of a stop string; often the token's own piece, sometimes empty, sometimes more than one token's.
// `ends`: the token ended the answer and is no part of its text; only sent to who asked for it.
struct TokenOutput {
  TokenId token = 0;
  std::string text;
  std::optional<TokenLogprob> logprob;
  std::vector<TokenLogprob> top_logprobs;  // descending
  bool ends = false;
};

// kToolCalls: what the parsed text makes of kStop; never sent by the engine.
enum class FinishReason { kStop, kLength, kCancelled, kToolCalls };

struct Timings {
  double queue_ms = 0;
  double prefill_ms = 0;  // admission to first token
  double decode_ms = 0;   // first token to last
  double prepare_ms = 0;  // the client's request was complete to submission
};

struct Finished {
  FinishReason reason = FinishReason::kStop;
  std::string text;  // text held back for stop strings that did not complete
  std::int32_t n_prompt_tokens = 0;
  std::int32_t n_generated_tokens = 0;
  std::int32_t n_preemptions = 0;
  Timings timings;
  std::int32_t n_cached_tokens = 0;  // 0 for the choices of a group but the first
  std::string stop_string = {};      // what ended the answer, if a stop string did
};

struct Failed {
  Error error;
};

using Event = std::variant<Started, PromptScored, Embedded, TokenOutput, Finished, Failed>;

// Receives the events of one request. publish() is called on the engine thread and must return at
// once: it appends to a bounded buffer. False asks the engine to cancel the request (the buffer is
// full or the client is gone); after that, or after Finished/Failed, it is not called again.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual bool publish(Event event) = 0;
};

}  // namespace graft
