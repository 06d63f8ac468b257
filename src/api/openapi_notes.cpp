#include <algorithm>
#include <iterator>
#include <string>

#include "api/openapi.h"

namespace graft::api {
namespace {

using enum Endpoint;

// clang-format off
constexpr RouteNotes kNotes[] = {
    // path, body, answer, streams, summary
    {"/v1/chat/completions", kChat, "ChatCompletion", true, "An answer to a chat"},
    {"/chat/completions", kChat, "ChatCompletion", true, "An answer to a chat"},
    {"/v1/completions", kCompletions, "Completion", true, "The continuation of a text"},
    {"/completions", kCompletions, "Completion", true, "The continuation of a text"},
    {"/v1/messages", kMessages, "Message", true, "An answer to a chat, in Anthropic's shape"},
    {"/v1/messages/count_tokens", kCountTokens, "TokenCount", false, "How long a prompt is"},
    {"/v1/responses", kResponses, "Response", true, "An answer in the shape of responses; nothing is stored"},
    {"/responses", kResponses, "Response", true, "An answer in the shape of responses; nothing is stored"},
    {"/v1/embeddings", kEmbeddings, "Embeddings", false, "Texts as vectors"},
    {"/embeddings", kEmbeddings, "Embeddings", false, "Texts as vectors"},
    {"/tokenize", kTokenize, "Tokens", false, "Text or messages to token ids"},
    {"/detokenize", kDetokenize, "Text", false, "Token ids to text"},
    {"/apply-template", kChat, "Prompt", false, "The prompt that a chat becomes"},
    {"/tokenizer_info", kNone, "TokenizerInfo", false, "What a client needs to use this tokenizer"},
    {"/props", kNone, "Props", false, "What was loaded"},
    {"/slots", kNone, "Slots", false, "How many requests run"},
    {"/openapi.json", kNone, "Document", false, "This document"},
    {"/v1/models", kNone, "Models", false, "The base under its names, and the modules"},
    {"/models", kNone, "Models", false, "The base under its names, and the modules"},
    {"/v1/models/*", kNone, "Model", false, "One of them"},
    {"/models/*", kNone, "Model", false, "One of them"},
    {"/v1/load_lora_adapter", kNone, "", false, "Loads a module from the modules directory", "LoadAdapter"},
    {"/load_lora_adapter", kNone, "", false, "Loads a module from the modules directory", "LoadAdapter"},
    {"/v1/unload_lora_adapter", kNone, "", false, "Unloads a module", "UnloadAdapter"},
    {"/unload_lora_adapter", kNone, "", false, "Unloads a module", "UnloadAdapter"},
    {"GET /lora-adapters", kNone, "LoraAdapters", false, "The modules by position"},
    {"POST /lora-adapters", kNone, "Success", false, "The scales of requests that name no module", "Scales"},
    {"/health", kNone, "Health", false, "Whether requests are taken"},
    {"/v1/health", kNone, "Health", false, "Whether requests are taken"},
    {"/load", kNone, "Load", false, "How many requests run or wait"},
    {"/metrics", kNone, "", false, "Metrics in Prometheus' text format"},
    {"/version", kNone, "Version", false, "The server's version"},
};

// One line per field that has more shape than a type: endpoints, field, schema.
struct FieldSchema {
  Endpoint where;
  std::string_view field;
  std::string_view schema;
};
constexpr Endpoint kGenerating = kBoth | kMessages | kResponses;
constexpr Endpoint kWithModules = kGenerating | kEmbeddings;
constexpr FieldSchema kFieldSchemas[] = {
    {kChat | kTokenize, "messages", "ChatMessages"},
    {kMessages | kCountTokens, "messages", "MessagesInput"},
    {kMessages | kCountTokens, "system", "TextOrBlocks"},
    {kResponses, "input", "ResponsesInput"},
    {kCompletions, "prompt", "CompletionPrompt"},
    {kEmbeddings, "input", "CompletionPrompt"},
    {kEmbeddings, "encoding_format", "EncodingFormat"},
    {kBoth, "stop", "Stop"},
    {kMessages, "stop_sequences", "StopList"},
    {kGenerating, "stop_token_ids", "TokenIds"},
    {kBoth, "allowed_token_ids", "TokenIds"},
    {kDetokenize, "tokens", "TokenIds"},
    {kBoth, "bad_words", "Words"},
    {kBoth, "samplers", "Samplers"},
    {kBoth, "logit_bias", "LogitBias"},
    {kBoth, "stream_options", "StreamOptions"},
    {kWithModules, "modules", "ModuleChoices"},
    {kWithModules, "lora", "LoraChoices"},
    {kChat, "tools", "ChatTools"},
    {kMessages | kCountTokens, "tools", "MessagesTools"},
    {kResponses, "tools", "ResponsesTools"},
};
// clang-format on

}  // namespace

const RouteNotes* find_notes(std::string_view method, std::string_view path) {
  const std::string with_method = std::string(method) + " " + std::string(path);
  const auto* const found = std::find_if(
      std::begin(kNotes), std::end(kNotes),
      [&](const RouteNotes& notes) { return notes.path == path || notes.path == with_method; });
  return found == std::end(kNotes) ? nullptr : found;
}

std::string_view field_schema(Endpoint endpoint, std::string_view field) {
  for (const FieldSchema& entry : kFieldSchemas) {
    if (overlap(entry.where, endpoint) && entry.field == field) return entry.schema;
  }
  return {};
}

}  // namespace graft::api
