// The fields of the endpoints beside chat and completions: Anthropic's messages, OpenAI's
// responses and embeddings, and the tokenizer's.
#include "api/fields.h"

#include <cstdint>
#include <limits>

namespace graft::api {
namespace {

constexpr double kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr double kInt64Max = static_cast<double>(std::numeric_limits<std::int64_t>::max());

using enum Endpoint;
using enum FieldType;
using enum FieldUse;

constexpr Endpoint kPrompted = kMessages | kCountTokens;
constexpr Endpoint kAnswered = kMessages | kResponses;

// clang-format off
constexpr Field kFields[] = {
    // name, where, type, use, min, max, neutral
    {"model", kPrompted | kResponses | kTokenize | kDetokenize, kString, kHonoured},
    {"modules", kAnswered, kArray, kHonoured},
    {"lora", kAnswered, kArray, kHonoured},
    {"stream", kAnswered, kBool, kHonoured},
    {"temperature", kAnswered, kNumber, kHonoured, 0, 10},
    {"top_p", kAnswered, kNumber, kHonoured, 0, 1},
    {"min_p", kAnswered, kNumber, kHonoured, 0, 1},
    {"repetition_penalty", kAnswered, kNumber, kHonoured, 0.01, 10},
    {"presence_penalty", kAnswered, kNumber, kHonoured, -2, 2},
    {"frequency_penalty", kAnswered, kNumber, kHonoured, -2, 2},
    {"seed", kAnswered, kInteger, kHonoured, -kInt64Max, kInt64Max},
    {"min_tokens", kAnswered, kInteger, kHonoured, 0, kInt32Max},
    {"ignore_eos", kAnswered, kBool, kHonoured},
    {"stop_token_ids", kAnswered, kArray, kHonoured},
    {"chat_template_kwargs", kPrompted | kResponses, kObject, kHonoured},
    {"cache_salt", kAnswered, kString, kHonoured},

    // /v1/messages and /v1/messages/count_tokens
    {"messages", kPrompted | kTokenize, kArray, kHonoured},
    {"system", kPrompted, kStringOrArray, kHonoured},
    {"max_tokens", kMessages, kInteger, kHonoured, 1, kInt32Max},
    {"stop_sequences", kMessages, kArray, kHonoured},
    {"top_k", kAnswered, kInteger, kHonoured, -1, kInt32Max},
    {"tools", kPrompted | kResponses | kTokenize, kArray, kHonoured},
    {"tool_choice", kPrompted, kObject, kHonoured},
    {"output_config", kPrompted, kObject, kHonoured},
    {"output_format", kPrompted, kObject, kHonoured},
    {"metadata", kMessages, kObject, kIgnored},
    {"thinking", kPrompted, kObject, kIgnored},
    {"context_management", kPrompted, kObject, kIgnored},
    {"cache_control", kPrompted, kObject, kIgnored},
    {"inference_geo", kMessages, kString, kIgnored},
    {"container", kMessages, kAny, kNeutralOnly},
    {"mcp_servers", kPrompted, kArray, kNeutralOnly},

    // /v1/responses
    {"input", kResponses, kStringOrArray, kHonoured},
    {"instructions", kResponses, kString, kHonoured},
    {"max_output_tokens", kResponses, kInteger, kHonoured, 1, kInt32Max},
    {"top_logprobs", kResponses, kInteger, kHonoured, 0, 20},
    {"include", kResponses, kArray, kHonoured},
    {"text", kResponses, kObject, kHonoured},
    {"tool_choice", kResponses, kAny, kHonoured},
    {"parallel_tool_calls", kResponses, kBool, kHonoured},
    {"metadata", kResponses, kObject, kHonoured},               // repeated in the answer
    {"previous_response_id", kResponses, kString, kHonoured},   // an error: see parse_responses
    {"conversation", kResponses, kAny, kNeutralOnly},
    {"background", kResponses, kBool, kNeutralOnly},
    {"prompt", kResponses, kObject, kNeutralOnly},
    {"store", kResponses, kBool, kIgnored},
    {"stream_options", kResponses, kObject, kIgnored},
    {"reasoning", kResponses, kObject, kIgnored},
    {"truncation", kResponses, kString, kIgnored},
    {"max_tool_calls", kResponses, kInteger, kIgnored, 0, kInt32Max},
    {"user", kResponses, kString, kIgnored},
    {"service_tier", kAnswered, kString, kIgnored},
    {"safety_identifier", kResponses, kString, kIgnored},
    {"prompt_cache_key", kResponses, kString, kIgnored},
    {"prompt_cache_retention", kResponses, kString, kIgnored},
    {"prompt_cache_options", kResponses, kObject, kIgnored},

    // /tokenize and /detokenize
    {"prompt", kTokenize, kString, kHonoured},
    {"add_special_tokens", kTokenize, kBool, kHonoured},
    {"return_token_strs", kTokenize, kBool, kHonoured},
    {"add_generation_prompt", kTokenize, kBool, kHonoured},
    {"continue_final_message", kTokenize, kBool, kHonoured},
    {"chat_template_kwargs", kTokenize, kObject, kHonoured},
    {"content", kTokenize, kString, kHonoured},
    {"add_special", kTokenize, kBool, kHonoured},
    {"parse_special", kTokenize, kBool, kHonoured},
    {"with_pieces", kTokenize, kBool, kHonoured},
    {"chat_template", kTokenize, kString, kNeutralOnly},
    {"tokens", kDetokenize, kArray, kHonoured},

    // /v1/embeddings
    {"model", kEmbeddings, kString, kHonoured},
    {"modules", kEmbeddings, kArray, kHonoured},
    {"lora", kEmbeddings, kArray, kHonoured},
    {"input", kEmbeddings, kStringOrArray, kHonoured},
    {"encoding_format", kEmbeddings, kString, kHonoured},
    {"dimensions", kEmbeddings, kInteger, kHonoured, 1, kInt32Max},
    {"truncate_prompt_tokens", kEmbeddings, kInteger, kHonoured, -1, kInt32Max},
    {"add_special_tokens", kEmbeddings, kBool, kHonoured},
    {"cache_salt", kEmbeddings, kString, kHonoured},
    {"priority", kEmbeddings, kInteger, kIgnored, -kInt32Max, kInt32Max},
    {"user", kEmbeddings, kString, kIgnored},
};
// clang-format on

}  // namespace

std::span<const Field> dialect_fields() { return kFields; }

}  // namespace graft::api
