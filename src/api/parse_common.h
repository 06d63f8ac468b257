// The parts of a generation request that chat and completions share, read from a body that
// check_fields() has passed. Each function fills its part of the call or says what is wrong.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"
#include "api/generation_call.h"
#include "api/request_json.h"
#include "base/result.h"

namespace graft::api {

Status read_modules(const Json& body, GenerationCall& call);
Status read_sampling(const Json& body, const ModelFacts& facts, GenerationCall& call);
Status read_stop_rules(const Json& body, const ModelFacts& facts, GenerationCall& call);
Status read_cache_rules(const Json& body, GenerationCall& call);
Status read_stream_options(const Json& body, GenerationCall& call);
// What clients of vLLM and llama-server send beside OpenAI's fields. After read_sampling().
Status read_extras(const Json& body, const ModelFacts& facts, GenerationCall& call);
// What is asked of the prompt itself, and whether anything is asked for at all. After the rules for
// stopping and streaming.
Status read_prompt_report(const Json& body, GenerationCall& call);
// The texts or lists of token ids in field `name`: one or up to `limit`.
Result<std::vector<TextPrompt>> read_prompts(const Json& body, const std::string& name,
                                             std::size_t limit, const ModelFacts& facts);
// -1 or at least 1.
Status read_truncation(const Json& body, GenerationCall& call);

// A whole chat request; also what the other dialects of chat are translated to. `body` is its text,
// which keeps the order of a schema's properties.
Result<GenerationCall> read_chat_call(const Json& json, std::string_view body,
                                      const ModelFacts& facts);

// `value` as a token id of the vocabulary. `param` names it in the error.
Result<TokenId> read_token_id(const Json& value, const ModelFacts& facts, const std::string& param);

}  // namespace graft::api
