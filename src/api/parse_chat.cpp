// The body of /v1/chat/completions.
#include <string>
#include <utility>

#include "api/generation_call.h"
#include "api/parse_common.h"
#include "api/parse_constraint.h"
#include "api/parse_messages.h"
#include "api/parse_tools.h"

namespace graft::api {
namespace {

Result<ChatPrompt> read_prompt(std::string_view body, const Json& json) {
  ChatPrompt prompt;
  GRAFT_ASSIGN_OR_RETURN(prompt.messages_json, read_messages(json));
  GRAFT_RETURN_IF_ERROR(read_tools(body, json, prompt));
  GRAFT_RETURN_IF_ERROR(read_template_kwargs(json, prompt));
  if (const Json* value = find_field(json, "add_generation_prompt")) {
    prompt.add_generation_prompt = value->get<bool>();
  }
  if (const Json* value = find_field(json, "continue_final_message")) {
    prompt.continue_final_message = value->get<bool>();
  }
  return prompt;
}

}  // namespace

Result<GenerationCall> parse_chat_call(std::string_view body, const ModelFacts& facts) {
  GRAFT_ASSIGN_OR_RETURN(const Json json, parse_request_json(body));
  return read_chat_call(json, body, facts);
}

Result<GenerationCall> read_chat_call(const Json& json, std::string_view body,
                                      const ModelFacts& facts) {
  GRAFT_RETURN_IF_ERROR(check_fields(json, Endpoint::kChat));
  GRAFT_ASSIGN_OR_RETURN(ChatPrompt prompt, read_prompt(body, json));
  const Json* logprobs = find_field(json, "logprobs");
  if (logprobs != nullptr && !logprobs->is_boolean()) {
    return invalid_argument("'logprobs' must be true or false.", "logprobs");
  }
  GenerationCall call;
  GRAFT_RETURN_IF_ERROR(read_modules(json, call));
  GRAFT_RETURN_IF_ERROR(read_sampling(json, facts, call));
  call.stop.max_tokens = facts.default_max_tokens;
  GRAFT_RETURN_IF_ERROR(read_stop_rules(json, facts, call));
  GRAFT_RETURN_IF_ERROR(read_cache_rules(json, call));
  GRAFT_RETURN_IF_ERROR(read_extras(json, facts, call));
  GRAFT_RETURN_IF_ERROR(read_stream_options(json, call));
  GRAFT_RETURN_IF_ERROR(read_constraint(json, body, call));
  GRAFT_RETURN_IF_ERROR(read_prompt_report(json, call));
  call.chat = std::move(prompt);
  if (call.n_choices > facts.max_choices) {
    return invalid_argument("'n' must be at most " + std::to_string(facts.max_choices) + ".", "n");
  }
  return call;
}

}  // namespace graft::api
