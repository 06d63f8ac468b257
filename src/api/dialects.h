// Requests of other dialects of chat, translated to a chat request: Anthropic's /v1/messages and
// OpenAI's /v1/responses. What they mean is then read once, by read_chat_call. Pure functions over
// hostile bytes; any thread.
#pragma once

#include <string>
#include <string_view>

#include "api/generation_call.h"
#include "base/result.h"

namespace graft::api {

// Errors: kInvalidArgument and kNotSupported, naming the field in `param` as the client wrote it.
Result<GenerationCall> parse_messages_call(std::string_view body, const ModelFacts& facts);
// The prompt of a messages request, for counting its tokens; `max_tokens` is not needed.
Result<GenerationCall> parse_count_tokens_call(std::string_view body, const ModelFacts& facts);

// What an answer of /v1/responses repeats of its request, as JSON text.
struct ResponsesEcho {
  std::string instructions = "null";
  std::string metadata = "{}";
  std::string tools = "[]";
  std::string tool_choice = "\"auto\"";
  std::string text_format = R"({"type":"text"})";
  std::string max_output_tokens = "null";
  bool parallel_tool_calls = true;
  float temperature = 1.0F;
  float top_p = 1.0F;
  int top_logprobs = 0;
};

struct ResponsesCall {
  GenerationCall call;
  ResponsesEcho echo;
};

Result<ResponsesCall> parse_responses_call(std::string_view body, const ModelFacts& facts);

}  // namespace graft::api
