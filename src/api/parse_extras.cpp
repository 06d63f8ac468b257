// Parameters that clients of vLLM and llama-server send beside OpenAI's.
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "api/parse_common.h"

namespace graft::api {
namespace {

constexpr std::size_t kMaxBadWords = 64;
constexpr std::size_t kMaxBadWordBytes = 256;
constexpr std::size_t kMaxAllowedTokens = 4096;

bool flag(const Json& body, const char* name, bool otherwise) {
  const Json* value = find_field(body, name);
  return value == nullptr ? otherwise : value->get<bool>();
}

Status read_bad_words(const Json& body, GenerationCall& call) {
  const Json* words = find_field(body, "bad_words");
  if (words == nullptr) return {};
  if (words->size() > kMaxBadWords) {
    return invalid_argument(
        "'bad_words' has more than " + std::to_string(kMaxBadWords) + " entries.", "bad_words");
  }
  for (const Json& word : *words) {
    if (!word.is_string() || word.get_ref<const std::string&>().empty() ||
        word.get_ref<const std::string&>().size() > kMaxBadWordBytes) {
      return invalid_argument(
          "'bad_words' must hold strings of 1 to " + std::to_string(kMaxBadWordBytes) + " bytes.",
          "bad_words");
    }
    call.bad_words.push_back(word.get<std::string>());
  }
  return {};
}

Status read_allowed_tokens(const Json& body, const ModelFacts& facts, GenerationCall& call) {
  const Json* list = find_field(body, "allowed_token_ids");
  if (list == nullptr) return {};
  if (list->empty() || list->size() > kMaxAllowedTokens) {
    return invalid_argument(
        "'allowed_token_ids' must have 1 to " + std::to_string(kMaxAllowedTokens) + " entries.",
        "allowed_token_ids");
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(
        const TokenId id,
        read_token_id((*list)[i], facts, "allowed_token_ids[" + std::to_string(i) + "]"));
    call.sampling.allowed_tokens.push_back(id);
  }
  return {};
}

// llama-server's list of what may narrow the choice: what it does not name is off. The order in
// which they act is always ours.
Status read_samplers(const Json& body, SamplingParams& sampling) {
  const Json* list = find_field(body, "samplers");
  if (list == nullptr) return {};
  // The others change nothing, as their own fields are only accepted at the value that is off.
  static constexpr const char* kKnown[] = {"penalties",   "top_k",      "top_p", "min_p",
                                           "temperature", "dry",        "xtc",   "typ_p",
                                           "typical_p",   "top_n_sigma"};
  for (const Json& entry : *list) {
    if (std::none_of(std::begin(kKnown), std::end(kKnown),
                     [&entry](const char* name) { return entry == name; })) {
      return Error{ErrorCode::kNotSupported,
                   "'samplers' must hold names among penalties, temperature, top_k, top_p, min_p.",
                   "samplers"};
    }
  }
  const auto named = [list](const char* name) {
    return std::find(list->begin(), list->end(), name) != list->end();
  };
  if (!named("penalties")) sampling.penalty_last_n = 0;
  if (!named("temperature")) sampling.temperature = 1;
  if (!named("top_k")) sampling.top_k = 0;
  if (!named("top_p")) sampling.top_p = 1;
  if (!named("min_p")) sampling.min_p = 0;
  return {};
}

}  // namespace

Status read_extras(const Json& body, const ModelFacts& facts, GenerationCall& call) {
  call.stop.keeps_string = flag(body, "include_stop_str_in_output", false);
  call.shows_special = !flag(body, "skip_special_tokens", true);
  call.add_special = flag(body, "add_special_tokens", true);
  call.report.token_ids = flag(body, "return_token_ids", false);
  call.report.tokens = flag(body, "return_tokens", false);
  call.report.tokens_as_ids = flag(body, "return_tokens_as_token_ids", false);
  call.report.timings = flag(body, "timings_per_token", false);
  GRAFT_RETURN_IF_ERROR(read_truncation(body, call));
  // llama-server's name for log-probabilities.
  const Json* n_probs = find_field(body, "n_probs");
  if (n_probs != nullptr && *n_probs > 0 && !call.sampling.n_logprobs) {
    call.sampling.n_logprobs = n_probs->get<std::int32_t>();
  }
  GRAFT_RETURN_IF_ERROR(read_bad_words(body, call));
  GRAFT_RETURN_IF_ERROR(read_allowed_tokens(body, facts, call));
  return read_samplers(body, call.sampling);
}

Status read_truncation(const Json& body, GenerationCall& call) {
  const Json* value = find_field(body, "truncate_prompt_tokens");
  if (value == nullptr) return {};
  call.truncate_prompt_tokens = value->get<std::int32_t>();
  if (call.truncate_prompt_tokens != 0) return {};
  return invalid_argument("'truncate_prompt_tokens' must be -1 or at least 1.",
                          "truncate_prompt_tokens");
}

Status read_prompt_report(const Json& body, GenerationCall& call) {
  call.echo = flag(body, "echo", false);
  if (const Json* value = find_field(body, "prompt_logprobs")) {
    call.n_prompt_logprobs = value->get<std::int32_t>();
    if (call.stream) {
      return invalid_argument("'prompt_logprobs' is not available with 'stream'.",
                              "prompt_logprobs");
    }
  }
  if (call.stop.max_tokens != 0 || call.echo || call.n_prompt_logprobs) return {};
  const char* name = "n_predict";
  for (const char* given : {"max_tokens", "max_completion_tokens"}) {
    if (find_field(body, given) != nullptr) name = given;
  }
  return invalid_argument("'" + std::string(name) +
                              "' is 0: nothing is generated, and neither 'echo' nor "
                              "'prompt_logprobs' asks for anything else.",
                          name);
}

}  // namespace graft::api
