#include "api/openapi.h"

namespace graft::api {

// Answers hold at least this; fields of requests are checked more closely than a schema can say.
// NOLINTNEXTLINE(readability-function-size): one text
std::string_view openapi_schemas() {
  return R"json({
"Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
  "required": ["message", "type", "param", "code"], "properties": {
    "message": {"type": "string"}, "type": {"type": "string"},
    "param": {"type": ["string", "null"]}, "code": {"type": ["string", "integer", "null"]}}}}},
"Usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
  "properties": {"prompt_tokens": {"type": "integer", "minimum": 0},
    "completion_tokens": {"type": "integer", "minimum": 0},
    "total_tokens": {"type": "integer", "minimum": 0},
    "prompt_tokens_details": {"type": "object", "properties": {
      "cached_tokens": {"type": "integer", "minimum": 0}}}}},
"FinishReason": {"enum": ["stop", "length", "tool_calls", "content_filter"]},
"ChatCompletion": {"type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "chat.completion"},
    "created": {"type": "integer"}, "model": {"type": "string"},
    "system_fingerprint": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
    "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
      "required": ["index", "message", "logprobs", "finish_reason"], "properties": {
        "index": {"type": "integer", "minimum": 0},
        "message": {"type": "object", "required": ["role", "content"], "properties": {
          "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
          "refusal": {"type": ["string", "null"]}}},
        "logprobs": {"type": ["object", "null"]},
        "finish_reason": {"$ref": "#/components/schemas/FinishReason"}}}}}},
"Completion": {"type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "text_completion"},
    "created": {"type": "integer"}, "model": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
      "required": ["index", "text", "logprobs", "finish_reason"], "properties": {
        "index": {"type": "integer", "minimum": 0}, "text": {"type": "string"},
        "logprobs": {"type": ["object", "null"]},
        "finish_reason": {"$ref": "#/components/schemas/FinishReason"}}}}}},
"Message": {"type": "object",
  "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
  "properties": {"id": {"type": "string"}, "type": {"const": "message"},
    "role": {"const": "assistant"}, "model": {"type": "string"},
    "content": {"type": "array", "items": {"type": "object", "required": ["type"]}},
    "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
    "stop_sequence": {"type": ["string", "null"]},
    "usage": {"type": "object", "required": ["input_tokens", "output_tokens"]}}},
"TokenCount": {"type": "object", "required": ["input_tokens"],
  "properties": {"input_tokens": {"type": "integer", "minimum": 0}}},
"Response": {"type": "object",
  "required": ["id", "object", "created_at", "status", "model", "output", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "response"},
    "created_at": {"type": "integer"}, "model": {"type": "string"},
    "status": {"enum": ["completed", "incomplete"]},
    "output": {"type": "array", "items": {"type": "object", "required": ["type", "id"]}},
    "usage": {"type": "object", "required": ["input_tokens", "output_tokens", "total_tokens"]}}},
"Tokens": {"type": "object", "required": ["tokens"], "properties": {
  "tokens": {"type": "array"}, "count": {"type": "integer", "minimum": 0},
  "max_model_len": {"type": "integer"}, "token_strs": {"type": ["array", "null"]}}},
"Text": {"type": "object", "required": ["prompt", "content"], "properties": {
  "prompt": {"type": "string"}, "content": {"type": "string"}}},
"Embeddings": {"type": "object", "required": ["object", "data", "model", "usage"],
  "properties": {"object": {"const": "list"}, "model": {"type": "string"},
    "data": {"type": "array", "minItems": 1, "items": {"type": "object",
      "required": ["object", "index", "embedding"], "properties": {
        "object": {"const": "embedding"}, "index": {"type": "integer", "minimum": 0},
        "embedding": {"type": ["array", "string"], "items": {"type": "number"}}}}},
    "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"]}}},
"EncodingFormat": {"enum": ["float", "base64"]},
"TokenizerInfo": {"type": "object", "required": ["bos_token", "eos_token", "chat_template"]},
"Prompt": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
"Props": {"type": "object", "required": ["default_generation_settings", "total_slots",
  "model_alias", "model_path", "chat_template", "bos_token", "eos_token", "build_info"]},
"Slots": {"type": "array", "items": {"type": "object",
  "required": ["id", "n_ctx", "is_processing"]}},
"Document": {"type": "object", "required": ["openapi", "info", "paths"]},
"Model": {"type": "object", "required": ["id", "object", "created", "owned_by", "root", "parent"],
  "properties": {"id": {"type": "string"}, "object": {"const": "model"},
    "created": {"type": "integer"}, "parent": {"type": ["string", "null"]},
    "max_model_len": {"type": "integer"}}},
"Models": {"type": "object", "required": ["object", "data"], "properties": {
  "object": {"const": "list"},
  "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
"Health": {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}},
"Load": {"type": "object", "required": ["server_load"],
  "properties": {"server_load": {"type": "integer", "minimum": 0}}},
"Version": {"type": "object", "required": ["version"],
  "properties": {"version": {"type": "string"}}},

"LoadAdapter": {"type": "object", "required": ["lora_name", "lora_path"], "properties": {
  "lora_name": {"type": "string", "minLength": 1}, "lora_path": {"type": "string", "minLength": 1},
  "load_inplace": {"type": "boolean"}}},
"UnloadAdapter": {"type": "object", "required": ["lora_name"],
  "properties": {"lora_name": {"type": "string", "minLength": 1}}},
"LoraAdapters": {"type": "array", "items": {"type": "object", "required": ["id", "name", "scale"]}},
"Scales": {"type": "array", "items": {"type": "object", "required": ["id", "scale"], "properties": {
  "id": {"type": "integer", "minimum": 0},
  "scale": {"type": "number", "minimum": -100, "maximum": 100}}}},
"Success": {"type": "object", "required": ["success"]},

"TextBlock": {"type": "object", "required": ["type", "text"], "properties": {
  "type": {"const": "text"}, "text": {"type": "string"}}},
"TextOrBlocks": {"anyOf": [{"type": "string"},
  {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/TextBlock"}}]},
"ChatMessages": {"type": "array", "minItems": 1, "items": {"type": "object",
  "required": ["role", "content"], "properties": {
    "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
    "content": {"$ref": "#/components/schemas/TextOrBlocks"}}}},
"MessagesInput": {"type": "array", "minItems": 1, "items": {"type": "object",
  "required": ["role", "content"], "properties": {"role": {"enum": ["user", "assistant"]},
    "content": {"$ref": "#/components/schemas/TextOrBlocks"}}}},
"ResponsesInput": {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {
  "type": "object", "required": ["role", "content"], "properties": {"type": {"const": "message"},
    "role": {"enum": ["user", "assistant", "system", "developer"]},
    "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object",
      "required": ["type", "text"], "properties": {"type": {"enum": ["input_text", "output_text"]},
        "text": {"type": "string"}}}}]}}}}]},
"TokenIds": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}},
"CompletionPrompt": {"anyOf": [{"type": "string"},
  {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
  {"type": "array", "minItems": 1, "maxItems": 128, "items": {"anyOf": [{"type": "string"},
    {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}]}}]},
"StopList": {"type": ["array", "null"], "maxItems": 32,
  "items": {"type": "string", "minLength": 1, "maxLength": 64}},
"Stop": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 64},
  {"$ref": "#/components/schemas/StopList"}]},
"Words": {"type": ["array", "null"], "maxItems": 64,
  "items": {"type": "string", "minLength": 1, "maxLength": 64}},
"Samplers": {"type": ["array", "null"], "items": {
  "enum": ["penalties", "temperature", "top_k", "top_p", "min_p", "dry", "xtc", "typ_p"]}},
"LogitBias": {"type": ["object", "null"], "maxProperties": 1024,
  "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
  "propertyNames": {"pattern": "^[0-9]{1,2}$"}},
"StreamOptions": {"type": ["object", "null"], "properties": {
  "include_usage": {"type": "boolean"}, "continuous_usage_stats": {"type": "boolean"},
  "include_obfuscation": {"type": "boolean"}}},
"ModuleChoices": {"type": ["array", "null"], "maxItems": 64, "items": {"type": "object",
  "required": ["name"], "properties": {"name": {"type": "string", "minLength": 1},
    "scale": {"type": "number", "minimum": -100, "maximum": 100}}}},
"LoraChoices": {"type": ["array", "null"], "maxItems": 64, "items": {"type": "object",
  "required": ["id"], "properties": {"id": {"type": "integer", "minimum": 0},
    "scale": {"type": "number", "minimum": -100, "maximum": 100}}}},
"ChatTools": {"type": ["array", "null"], "items": {"type": "object",
  "required": ["type", "function"], "properties": {"type": {"const": "function"},
    "function": {"type": "object", "required": ["name"], "properties": {
      "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
      "description": {"type": "string"}, "parameters": {"type": "object"}}}}}},
"MessagesTools": {"type": ["array", "null"], "items": {"type": "object",
  "required": ["name", "input_schema"], "properties": {
    "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
    "description": {"type": "string"}, "input_schema": {"type": "object"}}}},
"ResponsesTools": {"type": ["array", "null"], "items": {"type": "object",
  "required": ["type", "name"], "properties": {"type": {"const": "function"},
    "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
    "description": {"type": "string"}, "parameters": {"type": "object"}}}}
})json";
}

}  // namespace graft::api
