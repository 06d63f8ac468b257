#include "api/parse_common.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <utility>

namespace graft::api {
namespace {

constexpr std::size_t kMaxNameBytes = 512;
constexpr std::size_t kMaxModuleChoices = 64;
constexpr std::size_t kMaxStopStrings = 32;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxStopTokens = 128;
constexpr std::size_t kMaxBiases = 1024;
constexpr std::size_t kMaxSaltBytes = 256;
constexpr double kMaxBias = 100;
constexpr float kLeastTopP = 1e-6F;  // what `top_p: 0` means: the most likely token alone

std::string indexed(const char* name, std::size_t index) {
  return std::string(name) + "[" + std::to_string(index) + "]";
}

Error too_many(const char* name, std::size_t limit) {
  return invalid_argument(
      "'" + std::string(name) + "' has more than " + std::to_string(limit) + " entries.", name);
}

void read_float(const Json& body, const char* name, float& into) {
  if (const Json* value = find_field(body, name)) into = static_cast<float>(value->get<double>());
}

void read_int(const Json& body, const char* name, std::int32_t& into) {
  if (const Json* value = find_field(body, name)) into = value->get<std::int32_t>();
}

void read_bool(const Json& body, const char* name, bool& into) {
  if (const Json* value = find_field(body, name)) into = value->get<bool>();
}

Result<float> read_scale(const Json& entry, const std::string& param) {
  const Json* scale = find_field(entry, "scale");
  if (scale == nullptr) return 1.0F;
  if (!scale->is_number()) {
    return invalid_argument("'" + param + ".scale' must be a number.", param + ".scale");
  }
  return static_cast<float>(scale->get<double>());
}

Result<ModuleChoice> read_named_module(const Json& entry, const std::string& param) {
  if (!entry.is_object()) return invalid_argument("'" + param + "' must be an object.", param);
  const Json* name = find_field(entry, "name");
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty() ||
      name->get_ref<const std::string&>().size() > kMaxNameBytes) {
    return invalid_argument("'" + param + ".name' must be the name of a module.", param + ".name");
  }
  ModuleChoice choice;
  choice.name = name->get<std::string>();
  GRAFT_ASSIGN_OR_RETURN(choice.scale, read_scale(entry, param));
  return choice;
}

Result<ModuleChoice> read_indexed_module(const Json& entry, const std::string& param) {
  if (!entry.is_object()) return invalid_argument("'" + param + "' must be an object.", param);
  const Json* id = find_field(entry, "id");
  // An id of another type must not be read as 0: that would silently be the first module.
  if (id == nullptr || !id->is_number_integer() ||
      (id->is_number_unsigned() && id->get<std::uint64_t>() > INT64_MAX)) {
    return invalid_argument("'" + param + ".id' must be the integer id of a module.",
                            param + ".id");
  }
  ModuleChoice choice;
  choice.index = id->get<std::int64_t>();
  GRAFT_ASSIGN_OR_RETURN(choice.scale, read_scale(entry, param));
  return choice;
}

std::uint32_t fold_seed(std::int64_t seed) {
  const auto bits = static_cast<std::uint64_t>(seed);
  return static_cast<std::uint32_t>(bits ^ (bits >> 32));
}

Status read_biases(const Json& body, const ModelFacts& facts, SamplingParams& sampling) {
  const Json* biases = find_field(body, "logit_bias");
  if (biases == nullptr) return {};
  if (biases->size() > kMaxBiases) return too_many("logit_bias", kMaxBiases);
  for (const auto& [key, value] : biases->items()) {
    TokenId id = -1;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), id);
    if (read.ec != std::errc() || read.ptr != key.data() + key.size() || id < 0 ||
        id >= facts.n_vocab) {
      return invalid_argument("The keys of 'logit_bias' must be token ids from 0 to " +
                                  std::to_string(facts.n_vocab - 1) + ".",
                              "logit_bias");
    }
    if (!value.is_number() || !(value.get<double>() >= -kMaxBias) ||
        !(value.get<double>() <= kMaxBias)) {
      return invalid_argument("The values of 'logit_bias' must be numbers from -100 to 100.",
                              "logit_bias");
    }
    sampling.logit_bias.emplace_back(id, static_cast<float>(value.get<double>()));
  }
  return {};
}

Status read_logprobs(const Json& body, SamplingParams& sampling) {
  const Json* logprobs = find_field(body, "logprobs");
  const Json* top = find_field(body, "top_logprobs");
  if (logprobs != nullptr && logprobs->is_number()) {
    const double count = logprobs->get<double>();
    if (!(count >= 0 && count <= 20)) {
      return invalid_argument("'logprobs' must be an integer from 0 to 20.", "logprobs");
    }
    sampling.n_logprobs = logprobs->get<std::int32_t>();
  } else if (logprobs != nullptr && logprobs->get<bool>()) {
    sampling.n_logprobs = top == nullptr ? 0 : top->get<std::int32_t>();
  } else if (top != nullptr && top->get<std::int32_t>() > 0) {
    return invalid_argument("'top_logprobs' needs 'logprobs' to be true.", "top_logprobs");
  }
  return {};
}

Status read_stop_strings(const Json& body, StopRules& stop) {
  const Json* value = find_field(body, "stop");
  if (value == nullptr) return {};
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > kMaxStopStrings) return too_many("stop", kMaxStopStrings);
  for (const Json& entry : list) {
    if (!entry.is_string() || entry.get_ref<const std::string&>().empty() ||
        entry.get_ref<const std::string&>().size() > kMaxStopBytes) {
      return invalid_argument(
          "'stop' must hold strings of 1 to " + std::to_string(kMaxStopBytes) + " bytes.", "stop");
    }
    stop.strings.push_back(entry.get<std::string>());
  }
  return {};
}

Status read_stop_tokens(const Json& body, const ModelFacts& facts, StopRules& stop) {
  const Json* list = find_field(body, "stop_token_ids");
  if (list == nullptr) return {};
  if (list->size() > kMaxStopTokens) return too_many("stop_token_ids", kMaxStopTokens);
  for (std::size_t i = 0; i < list->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(const TokenId id,
                           read_token_id((*list)[i], facts, indexed("stop_token_ids", i)));
    stop.token_ids.push_back(id);
  }
  return {};
}

}  // namespace

Result<TokenId> read_token_id(const Json& value, const ModelFacts& facts,
                              const std::string& param) {
  if (!value.is_number_integer() || !(value.get<double>() >= 0) ||
      !(value.get<double>() < facts.n_vocab)) {
    return invalid_argument(
        "'" + param + "' must be a token id from 0 to " + std::to_string(facts.n_vocab - 1) + ".",
        param);
  }
  return value.get<TokenId>();
}

Status read_modules(const Json& body, GenerationCall& call) {
  if (const Json* model = find_field(body, "model")) {
    call.model = model->get<std::string>();
    if (call.model.empty() || call.model.size() > kMaxNameBytes) {
      return invalid_argument("'model' must be a name of 1 to 512 bytes.", "model");
    }
  }
  const Json* modules = find_field(body, "modules");
  const Json* lora = find_field(body, "lora");
  if (modules != nullptr && lora != nullptr) {
    return invalid_argument("'modules' and 'lora' cannot both be given.", "lora");
  }
  const char* name = modules != nullptr ? "modules" : "lora";
  const Json* list = modules != nullptr ? modules : lora;
  if (list == nullptr) return {};
  if (list->size() > kMaxModuleChoices) return too_many(name, kMaxModuleChoices);
  for (std::size_t i = 0; i < list->size(); ++i) {
    auto choice = modules != nullptr ? read_named_module((*list)[i], indexed(name, i))
                                     : read_indexed_module((*list)[i], indexed(name, i));
    if (!choice) return std::move(choice).error();
    call.modules.push_back(std::move(choice).value());
  }
  return {};
}

Status read_sampling(const Json& body, const ModelFacts& facts, GenerationCall& call) {
  SamplingParams& sampling = call.sampling;
  read_float(body, "temperature", sampling.temperature);
  read_int(body, "top_k", sampling.top_k);
  sampling.top_k = std::clamp(sampling.top_k, 0, facts.n_vocab);
  read_float(body, "top_p", sampling.top_p);
  sampling.top_p = std::max(sampling.top_p, kLeastTopP);
  read_float(body, "min_p", sampling.min_p);
  read_float(body, "repeat_penalty", sampling.repetition_penalty);
  read_float(body, "repetition_penalty", sampling.repetition_penalty);
  read_float(body, "frequency_penalty", sampling.frequency_penalty);
  read_float(body, "presence_penalty", sampling.presence_penalty);
  read_int(body, "repeat_last_n", sampling.penalty_last_n);
  if (sampling.penalty_last_n < 0) sampling.penalty_last_n = facts.n_context_tokens;
  sampling.penalty_last_n = std::min(sampling.penalty_last_n, facts.n_context_tokens);
  // llama-server's clients send -1 for "choose one".
  const Json* seed = find_field(body, "seed");
  if (seed != nullptr && *seed != -1) sampling.seed = fold_seed(seed->get<std::int64_t>());
  read_int(body, "n", call.n_choices);
  GRAFT_RETURN_IF_ERROR(read_biases(body, facts, sampling));
  return read_logprobs(body, sampling);
}

Status read_stop_rules(const Json& body, const ModelFacts& facts, GenerationCall& call) {
  StopRules& stop = call.stop;
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    read_int(body, name, stop.max_tokens);
  }
  read_int(body, "min_tokens", stop.min_tokens);
  if (stop.max_tokens > 0 && stop.min_tokens > stop.max_tokens) {
    return invalid_argument("'min_tokens' is " + std::to_string(stop.min_tokens) +
                                ", more than the " + std::to_string(stop.max_tokens) +
                                " tokens that the answer may have.",
                            "min_tokens");
  }
  read_bool(body, "ignore_eos", stop.ignore_eos);
  GRAFT_RETURN_IF_ERROR(read_stop_strings(body, stop));
  return read_stop_tokens(body, facts, stop);
}

Status read_cache_rules(const Json& body, GenerationCall& call) {
  PrefixCacheRules& rules = call.prefix_cache;
  if (const Json* salt = find_field(body, "cache_salt")) {
    rules.salt = salt->get<std::string>();
    if (rules.salt.size() > kMaxSaltBytes) {
      return invalid_argument("'cache_salt' has more than 256 bytes.", "cache_salt");
    }
  }
  read_bool(body, "cache_prompt", rules.may_read);
  rules.may_write = rules.may_read;
  return {};
}

Status read_stream_options(const Json& body, GenerationCall& call) {
  read_bool(body, "stream", call.stream);
  const Json* options = find_field(body, "stream_options");
  if (options == nullptr) return {};
  if (!call.stream) {
    return invalid_argument("'stream_options' needs 'stream' to be true.", "stream_options");
  }
  for (const char* name : {"include_usage", "continuous_usage_stats", "include_obfuscation"}) {
    const Json* value = find_field(*options, name);
    if (value != nullptr && !value->is_boolean()) {
      const std::string param = "stream_options." + std::string(name);
      return invalid_argument("'" + param + "' must be true or false.", param);
    }
  }
  read_bool(*options, "include_usage", call.include_usage);
  read_bool(*options, "continuous_usage_stats", call.continuous_usage);
  call.continuous_usage = call.continuous_usage && call.include_usage;
  return {};
}

}  // namespace graft::api
