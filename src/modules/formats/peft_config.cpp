#include "modules/formats/peft_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "modules/formats/strict_json.h"

namespace graft {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxPatterns = 4096;
constexpr std::size_t kMaxPatternBytes = 4096;

// Keys that change nothing when a finished adapter runs.
constexpr std::array<std::string_view, 29> kInertKeys = {"auto_mapping",
                                                         "revision",
                                                         "inference_mode",
                                                         "lora_dropout",
                                                         "exclude_modules",
                                                         "layers_to_transform",
                                                         "layers_pattern",
                                                         "fan_in_fan_out",
                                                         "loftq_config",
                                                         "megatron_config",
                                                         "megatron_core",
                                                         "eva_config",
                                                         "corda_config",
                                                         "lora_ga_config",
                                                         "velora_config",
                                                         "monteclora_config",
                                                         "mica",
                                                         "mica_config",
                                                         "runtime_config",
                                                         "qalora_group_size",
                                                         "merge_weights",
                                                         "base_model_name_or_path",
                                                         "target_modules",
                                                         "task_type",
                                                         "peft_type",
                                                         "peft_version",
                                                         "r",
                                                         "use_rslora",
                                                         "ensure_weight_tying"};

// Keys whose presence, when set, means a method that is not plain LoRA.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kUnsupportedKeys = {{
    {"use_dora", "DoRA is not supported yet"},
    {"alora_invocation_tokens", "aLoRA (activated LoRA) is not supported yet"},
    {"alora_invocation_string", "aLoRA (activated LoRA) is not supported yet"},
    {"layer_replication", "layer replication is not supported yet"},
    {"modules_to_save", "replaced modules (modules_to_save) are not supported yet"},
    {"trainable_token_indices", "trainable tokens are not supported yet"},
    {"target_parameters", "target_parameters (LoRA on fused expert weights) is not supported yet"},
    {"use_qalora", "QALoRA is not supported yet"},
    {"use_bdlora", "BD-LoRA is not supported yet"},
    {"kasa_config", "KaSA is not supported: its base was changed while training"},
    {"use_kasa", "KaSA is not supported: its base was changed while training"},
    {"arrow_config", "Arrow routing is not supported yet"},
    {"enable_lora", "the legacy setting enable_lora is not supported"},
}};

// Names as people write them, for methods whose identifier is not one.
constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kOtherMethods = {{
    {"ADALORA", "AdaLoRA"},
    {"IA3", "IA3"},
    {"VERA", "VeRA"},
    {"LOHA", "LoHa"},
    {"LOKR", "LoKr"},
    {"OFT", "OFT"},
    {"BOFT", "BOFT"},
    {"MISS", "MiSS"},
    {"BONE", "Bone"},
    {"RANDLORA", "RandLoRA"},
    {"SHIRA", "SHiRA"},
    {"HIRA", "HiRA"},
    {"HRA", "HRA"},
    {"ROAD", "RoAd"},
    {"FOURIERFT", "FourierFT"},
    {"WAVEFT", "WaveFT"},
    {"VBLORA", "VB-LoRA"},
    {"DELORA", "DeLoRA"},
    {"GRALORA", "GraLoRA"},
    {"LN_TUNING", "LayerNorm tuning"},
    {"PREFIX_TUNING", "prefix tuning"},
    {"PROMPT_TUNING", "prompt tuning"},
    {"P_TUNING", "P-tuning"},
    {"XLORA", "X-LoRA"},
}};

template <typename Table>
bool contains(const Table& table, std::string_view word) {
  return std::find(table.begin(), table.end(), word) != table.end();
}

template <typename Table>
std::string_view look_up(const Table& table, std::string_view word) {
  for (const auto& [key, value] : table) {
    if (key == word) return value;
  }
  return {};
}

// Null, false, zero and empty values ask for nothing.
bool asks_for_something(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

Error wrong_value(std::string_view key, const std::string& expected) {
  return invalid_argument("adapter_config.json: '" + std::string(key) + "' must be " + expected);
}

const Json* find(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? nullptr : &*found;
}

Result<std::string> read_string(const Json& config, const char* key) {
  const Json* value = find(config, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return wrong_value(key, "a string");
  return value->get<std::string>();
}

Result<bool> read_bool(const Json& config, const char* key) {
  const Json* value = find(config, key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return wrong_value(key, "true or false");
  return value->get<bool>();
}

bool is_rank(const Json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
         value.get<std::uint64_t>() <= (1U << 20);
}

bool is_alpha(const Json& value) {
  if (!value.is_number()) return false;
  const double alpha = value.get<double>();
  return std::isfinite(alpha) && alpha != 0 && std::abs(alpha) <= 1e9;
}

// A list of names, or one name or regular expression; both only describe how the file was made.
Result<std::vector<std::string>> read_names(const Json& config, const char* key) {
  std::vector<std::string> names;
  const Json* value = find(config, key);
  if (value == nullptr) return names;
  if (value->is_string()) return std::vector<std::string>{value->get<std::string>()};
  if (!value->is_array()) return wrong_value(key, "a list of names");
  for (const Json& name : *value) {
    if (!name.is_string()) return wrong_value(key, "a list of names");
    names.push_back(name.get<std::string>());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::vector<PeftPattern>> read_patterns(const Json& config, const char* key,
                                               bool (*is_valid)(const Json&),
                                               const std::string& expected) {
  std::vector<PeftPattern> patterns;
  const Json* value = find(config, key);
  if (value == nullptr) return patterns;
  if (!value->is_object()) return wrong_value(key, "an object");
  if (value->size() > kMaxPatterns) {
    return wrong_value(key, "at most " + std::to_string(kMaxPatterns) + " patterns");
  }
  for (const auto& [pattern, number] : value->items()) {
    if (!is_valid(number)) return wrong_value(key, "an object whose values are " + expected);
    if (pattern.size() > kMaxPatternBytes) {
      return wrong_value(
          key, "made of patterns of at most " + std::to_string(kMaxPatternBytes) + " bytes");
    }
    patterns.push_back({pattern, number.get<double>()});
  }
  return patterns;
}

Status read_rank_and_alpha(const Json& json, PeftConfig& config) {
  if (const Json* r = find(json, "r")) {
    if (!is_rank(*r)) return wrong_value("r", "a whole number from 1 to 1048576");
    config.r = r->get<std::int64_t>();
  }
  if (const Json* alpha = find(json, "lora_alpha")) {
    if (!is_alpha(*alpha)) return wrong_value("lora_alpha", "a finite number other than zero");
    config.lora_alpha = alpha->get<double>();
  }
  GRAFT_ASSIGN_OR_RETURN(config.rank_pattern,
                         read_patterns(json, "rank_pattern", is_rank, "ranks of at least 1"));
  GRAFT_ASSIGN_OR_RETURN(config.alpha_pattern, read_patterns(json, "alpha_pattern", is_alpha,
                                                             "finite numbers other than zero"));
  return {};
}

Status read_fields(const Json& json, PeftConfig& config) {
  GRAFT_ASSIGN_OR_RETURN(config.use_rslora, read_bool(json, "use_rslora"));
  GRAFT_ASSIGN_OR_RETURN(config.lora_bias, read_bool(json, "lora_bias"));
  GRAFT_ASSIGN_OR_RETURN(config.ensure_weight_tying, read_bool(json, "ensure_weight_tying"));
  GRAFT_ASSIGN_OR_RETURN(config.target_modules, read_names(json, "target_modules"));
  GRAFT_ASSIGN_OR_RETURN(config.modules_to_save, read_names(json, "modules_to_save"));
  GRAFT_ASSIGN_OR_RETURN(config.base_model_name, read_string(json, "base_model_name_or_path"));
  GRAFT_ASSIGN_OR_RETURN(config.task_type, read_string(json, "task_type"));
  GRAFT_ASSIGN_OR_RETURN(config.peft_version, read_string(json, "peft_version"));
  return read_rank_and_alpha(json, config);
}

// These initialisations leave the base as it was; others subtract something from it.
bool is_plain_initialisation(const Json& value) {
  if (value.is_null() || value.is_boolean()) return true;
  static constexpr std::array<std::string_view, 7> kPlain = {
      "gaussian", "eva", "orthogonal", "mica", "true", "True", "false"};
  return value.is_string() && contains(kPlain, value.get_ref<const std::string&>());
}

void note_initialisation(const Json& value, PeftConfig& config) {
  if (is_plain_initialisation(value)) return;
  const std::string method = value.is_string() ? value.get<std::string>() : value.dump();
  config.unsupported.push_back(
      "LoRA initialised by '" + method +
      "' is not supported: its base was changed while training. Convert it to plain LoRA with "
      "save_pretrained(..., path_initial_model_for_weight_conversion=...)");
}

void note_bias(const Json& value, PeftConfig& config) {
  if (!asks_for_something(value) || value == "none") return;
  const std::string kind = value.is_string() ? value.get<std::string>() : value.dump();
  config.unsupported.push_back("trained biases (bias = \"" + kind + "\") are not supported yet");
}

void note_modules_to_save(PeftConfig& config) {
  std::string sentence = "replaced modules (modules_to_save:";
  for (const std::string& name : config.modules_to_save) sentence += " " + name;
  sentence += ") are not supported yet";
  if (config.task_type.ends_with("_CLS") || config.task_type == "QUESTION_ANS") {
    sentence += "; this is a classifier (" + config.task_type + "), not a language model";
  }
  config.unsupported.push_back(sentence);
}

// Rule: what nobody knows is ignored only when it asks for nothing.
void note_key(const std::string& key, const Json& value, PeftConfig& config) {
  if (key == "init_lora_weights") return note_initialisation(value, config);
  if (key == "bias") return note_bias(value, config);
  if (!asks_for_something(value)) return;
  if (key == "modules_to_save") return note_modules_to_save(config);
  static constexpr std::array<std::string_view, 4> kRead = {"lora_alpha", "rank_pattern",
                                                            "alpha_pattern", "lora_bias"};
  if (contains(kInertKeys, key) || contains(kRead, key)) return;
  const std::string_view sentence = look_up(kUnsupportedKeys, key);
  config.unsupported.emplace_back(
      sentence.empty() ? "the setting '" + key + "' is not known here and may change the result"
                       : std::string(sentence));
}

Status check_program(const Json& json) {
  if (!json.is_object()) return invalid_argument("adapter_config.json is not an object");
  if (json.contains("peft_type")) return {};
  if (json.contains("fine_tune_type") || json.contains("lora_parameters")) {
    return not_supported("MLX LoRA is not supported yet (adapter_config.json has fine_tune_type)");
  }
  return invalid_argument("adapter_config.json has no peft_type: this is not a PEFT adapter");
}

}  // namespace

Result<PeftConfig> parse_peft_config(std::string_view text) {
  const JsonLimits limits{.max_depth = 8, .max_values = 1U << 17, .max_names = 4096};
  GRAFT_ASSIGN_OR_RETURN(const Json json,
                         parse_strict_ordered_json(text, limits, "adapter_config.json"));
  GRAFT_RETURN_IF_ERROR(check_program(json));

  PeftConfig config;
  GRAFT_ASSIGN_OR_RETURN(config.peft_type, read_string(json, "peft_type"));
  if (config.peft_type != "LORA") {
    // Other methods give r, bias and the rest another meaning, so nothing else is read.
    const std::string_view known = look_up(kOtherMethods, config.peft_type);
    config.unsupported.push_back(
        (known.empty() ? "the PEFT method '" + config.peft_type + "'" : std::string(known)) +
        " is not supported yet");
    GRAFT_ASSIGN_OR_RETURN(config.base_model_name, read_string(json, "base_model_name_or_path"));
    return config;
  }
  GRAFT_RETURN_IF_ERROR(read_fields(json, config));
  for (const auto& [key, value] : json.items()) note_key(key, value, config);
  return config;
}

Status check_supported(const PeftConfig& config) {
  if (config.unsupported.empty()) return {};
  std::string message = config.unsupported.front();
  const std::size_t n_more = config.unsupported.size() - 1;
  if (n_more > 0) message += " (and " + std::to_string(n_more) + " more: " + config.unsupported[1];
  if (n_more > 1) message += ", ...";
  if (n_more > 0) message += ")";
  return not_supported(message);
}

}  // namespace graft
