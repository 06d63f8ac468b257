// The body of /v1/completions.
#include <cstddef>
#include <string>
#include <utility>

#include "api/generation_call.h"
#include "api/parse_common.h"
#include "api/parse_constraint.h"

namespace graft::api {
namespace {

constexpr std::int32_t kDefaultMaxTokens = 16;
constexpr std::size_t kMaxPrompts = 128;

Result<TextPrompt> read_token_prompt(const Json& list, const ModelFacts& facts,
                                     const std::string& param) {
  if (list.empty()) return invalid_argument("'" + param + "' is empty.", param);
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(const TokenId id,
                           read_token_id(list[i], facts, param + "[" + std::to_string(i) + "]"));
    tokens.push_back(id);
  }
  return TextPrompt(std::move(tokens));
}

Result<TextPrompt> read_prompt(const Json& prompt, const ModelFacts& facts,
                               const std::string& param) {
  if (prompt.is_string()) return TextPrompt(prompt.get<std::string>());
  if (prompt.is_array()) return read_token_prompt(prompt, facts, param);
  return invalid_argument("'" + param + "' must be a string or an array of token ids.", param);
}

}  // namespace

Result<std::vector<TextPrompt>> read_prompts(const Json& body, const std::string& name,
                                             std::size_t limit, const ModelFacts& facts) {
  const Json* given = find_field(body, name.c_str());
  if (given == nullptr) return invalid_argument("'" + name + "' is missing.", name);
  std::vector<TextPrompt> prompts;
  const bool one = given->is_string() || (!given->empty() && (*given)[0].is_number());
  if (one) {
    GRAFT_ASSIGN_OR_RETURN(TextPrompt read, read_prompt(*given, facts, name));
    prompts.push_back(std::move(read));
    return prompts;
  }
  if (given->empty()) return invalid_argument("'" + name + "' is empty.", name);
  if (given->size() > limit) {
    return invalid_argument("'" + name + "' has more than " + std::to_string(limit) + " entries.",
                            name);
  }
  for (std::size_t i = 0; i < given->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(TextPrompt read,
                           read_prompt((*given)[i], facts, name + "[" + std::to_string(i) + "]"));
    prompts.push_back(std::move(read));
  }
  return prompts;
}

Result<GenerationCall> parse_completions_call(std::string_view body, const ModelFacts& facts) {
  GRAFT_ASSIGN_OR_RETURN(const Json json, parse_request_json(body));
  GRAFT_RETURN_IF_ERROR(check_fields(json, Endpoint::kCompletions));
  const Json* logprobs = find_field(json, "logprobs");
  if (logprobs != nullptr && logprobs->is_boolean() && logprobs->get<bool>()) {
    return invalid_argument("'logprobs' must be an integer from 0 to 20.", "logprobs");
  }
  GenerationCall call;
  call.stop.max_tokens = kDefaultMaxTokens;
  GRAFT_RETURN_IF_ERROR(read_modules(json, call));
  GRAFT_RETURN_IF_ERROR(read_sampling(json, facts, call));
  GRAFT_RETURN_IF_ERROR(read_stop_rules(json, facts, call));
  GRAFT_RETURN_IF_ERROR(read_cache_rules(json, call));
  GRAFT_RETURN_IF_ERROR(read_extras(json, facts, call));
  GRAFT_RETURN_IF_ERROR(read_stream_options(json, call));
  GRAFT_RETURN_IF_ERROR(read_constraint(json, body, call));
  GRAFT_RETURN_IF_ERROR(read_prompt_report(json, call));
  GRAFT_ASSIGN_OR_RETURN(call.prompts, read_prompts(json, "prompt", kMaxPrompts, facts));
  const auto n_prompts = static_cast<std::int32_t>(call.prompts.size());
  if (n_prompts * call.n_choices > facts.max_choices) {
    return invalid_argument("The request asks for " + std::to_string(n_prompts * call.n_choices) +
                                " answers at once (prompts x n); at most " +
                                std::to_string(facts.max_choices) + " are possible.",
                            n_prompts > 1 ? "prompt" : "n");
  }
  return call;
}

}  // namespace graft::api
