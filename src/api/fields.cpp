#include "api/fields.h"

#include <cstdint>
#include <limits>
#include <string>

#include "api/json_text.h"

namespace graft::api {
namespace {

constexpr double kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr double kInt64Max = static_cast<double>(std::numeric_limits<std::int64_t>::max());
constexpr double kFloatMax = std::numeric_limits<float>::max();

using enum Endpoint;
using enum FieldType;
using enum FieldUse;

// clang-format off
constexpr Field kFields[] = {
    // name, where, type, use, min, max, neutral
    {"model", kBoth, kString, kHonoured},
    {"modules", kBoth, kArray, kHonoured},
    {"lora", kBoth, kArray, kHonoured},
    {"messages", kChat, kArray, kHonoured},
    {"prompt", kCompletions, kStringOrArray, kHonoured},
    {"max_tokens", kBoth, kInteger, kHonoured, 0, kInt32Max},
    {"max_completion_tokens", kBoth, kInteger, kHonoured, 0, kInt32Max},
    {"n_predict", kBoth, kInteger, kHonoured, -1, kInt32Max},
    {"min_tokens", kBoth, kInteger, kHonoured, 0, kInt32Max},
    {"temperature", kBoth, kNumber, kHonoured, 0, 10},
    {"top_k", kBoth, kInteger, kHonoured, -1, kInt32Max},
    {"top_p", kBoth, kNumber, kHonoured, 0, 1},
    {"min_p", kBoth, kNumber, kHonoured, 0, 1},
    {"repetition_penalty", kBoth, kNumber, kHonoured, 0.01, 10},
    {"repeat_penalty", kBoth, kNumber, kHonoured, 0.01, 10},
    {"repeat_last_n", kBoth, kInteger, kHonoured, -1, kInt32Max},
    {"presence_penalty", kBoth, kNumber, kHonoured, -2, 2},
    {"frequency_penalty", kBoth, kNumber, kHonoured, -2, 2},
    {"seed", kBoth, kInteger, kHonoured, -kInt64Max, kInt64Max},
    {"n", kBoth, kInteger, kHonoured, 1, 16},
    {"stop", kBoth, kStringOrArray, kHonoured},
    {"stop_token_ids", kBoth, kArray, kHonoured},
    {"ignore_eos", kBoth, kBool, kHonoured},
    {"logit_bias", kBoth, kObject, kHonoured},
    {"logprobs", kBoth, kBoolOrInteger, kHonoured},
    {"top_logprobs", kBoth, kInteger, kHonoured, 0, 20},
    {"stream", kBoth, kBool, kHonoured},
    {"stream_options", kBoth, kObject, kHonoured},
    {"add_generation_prompt", kChat, kBool, kHonoured},
    {"tools", kChat, kArray, kHonoured},
    {"tool_choice", kChat, kAny, kHonoured},
    {"response_format", kBoth, kObject, kHonoured},
    {"grammar", kBoth, kString, kHonoured},
    {"json_schema", kBoth, kObject, kHonoured},
    {"structured_outputs", kBoth, kObject, kHonoured},
    {"guided_json", kBoth, kAny, kHonoured},
    {"guided_regex", kBoth, kString, kHonoured},
    {"guided_choice", kBoth, kArray, kHonoured},
    {"guided_grammar", kBoth, kString, kHonoured},
    {"parallel_tool_calls", kChat, kBool, kHonoured},
    {"functions", kChat, kArray, kHonoured},    // refused with the way out: see parse_tools
    {"function_call", kChat, kAny, kHonoured},
    {"chat_template_kwargs", kChat, kObject, kHonoured},
    {"reasoning_effort", kChat, kString, kHonoured},

    {"user", kBoth, kString, kIgnored},
    {"store", kBoth, kBool, kIgnored},
    {"metadata", kBoth, kObject, kIgnored},
    {"service_tier", kBoth, kString, kIgnored},
    {"safety_identifier", kBoth, kString, kIgnored},
    {"prompt_cache_key", kBoth, kString, kIgnored},
    {"prompt_cache_retention", kBoth, kString, kIgnored},
    {"prompt_cache_options", kBoth, kObject, kIgnored},
    {"verbosity", kBoth, kString, kIgnored},
    {"modalities", kBoth, kArray, kIgnored},
    {"prediction", kChat, kObject, kIgnored},
    {"priority", kBoth, kInteger, kIgnored, -kInt32Max, kInt32Max},
    {"cache_salt", kBoth, kString, kHonoured},
    {"cache_prompt", kBoth, kBool, kHonoured},
    {"id_slot", kBoth, kInteger, kIgnored, -1, kInt32Max},
    {"timings_per_token", kBoth, kBool, kHonoured},
    {"include_stop_str_in_output", kBoth, kBool, kHonoured},

    {"audio", kChat, kObject, kNeutralOnly},
    {"continue_final_message", kChat, kBool, kHonoured},
    {"chat_template", kChat, kString, kNeutralOnly},
    {"documents", kChat, kArray, kNeutralOnly},
    {"echo", kCompletions, kBool, kHonoured},
    {"echo", kChat, kBool, kNeutralOnly},
    {"suffix", kCompletions, kString, kNeutralOnly},
    {"best_of", kBoth, kInteger, kNeutralOnly, 1, kInt32Max, 1},
    {"use_beam_search", kBoth, kBool, kNeutralOnly},
    {"prompt_logprobs", kBoth, kInteger, kHonoured, 0, 20},
    {"return_token_ids", kBoth, kBool, kHonoured},
    {"return_tokens", kBoth, kBool, kHonoured},
    {"return_tokens_as_token_ids", kBoth, kBool, kHonoured},
    {"truncate_prompt_tokens", kBoth, kInteger, kHonoured, -1, kInt32Max},
    {"bad_words", kBoth, kArray, kHonoured},
    {"allowed_token_ids", kBoth, kArray, kHonoured},
    {"samplers", kBoth, kArray, kHonoured},  // which act; the order is ours
    {"n_probs", kBoth, kInteger, kHonoured, 0, 20},
    {"n_keep", kBoth, kInteger, kIgnored, -1, kInt32Max},
    {"n_discard", kBoth, kInteger, kIgnored, 0, kInt32Max},
    {"typical_p", kBoth, kNumber, kNeutralOnly, 0, kFloatMax, 1},
    {"top_n_sigma", kBoth, kNumber, kNeutralOnly, -1, kFloatMax, -1},
    {"xtc_probability", kBoth, kNumber, kNeutralOnly, 0, 1, 0},
    {"dynatemp_range", kBoth, kNumber, kNeutralOnly, 0, kFloatMax, 0},
    {"dry_multiplier", kBoth, kNumber, kNeutralOnly, 0, kFloatMax, 0},
    {"mirostat", kBoth, kInteger, kNeutralOnly, 0, 2, 0},
    {"skip_special_tokens", kBoth, kBool, kHonoured},
    {"spaces_between_special_tokens", kBoth, kBool, kIgnored},
    // A chat template writes them itself.
    {"add_special_tokens", kChat, kBool, kIgnored},
    {"add_special_tokens", kCompletions, kBool, kHonoured},
};
// clang-format on

Error wrong(const Field& field, const std::string& expected) {
  return must_be(std::string(field.name), expected);
}

std::string range_text(const Field& field) {
  std::string text = " from ";
  append_number(text, field.min);
  text += " to ";
  append_number(text, field.max);
  return text;
}

Status check_number(const Field& field, const Json& value) {
  const bool integer = field.type == FieldType::kInteger;
  const std::string expected = (integer ? "an integer" : "a number") + range_text(field);
  if (integer ? !value.is_number_integer() : !value.is_number()) return wrong(field, expected);
  const double number = value.get<double>();
  if (!(number >= field.min && number <= field.max)) return wrong(field, expected);
  return {};
}

Status check_type(const Field& field, const Json& value) {
  switch (field.type) {
    case FieldType::kBool: return value.is_boolean() ? Status() : wrong(field, "true or false");
    case FieldType::kInteger:
    case FieldType::kNumber: return check_number(field, value);
    case FieldType::kString: return value.is_string() ? Status() : wrong(field, "a string");
    case FieldType::kObject: return value.is_object() ? Status() : wrong(field, "an object");
    case FieldType::kArray: return value.is_array() ? Status() : wrong(field, "an array");
    case FieldType::kStringOrArray:
      if (value.is_string() || value.is_array()) return {};
      return wrong(field, "a string or an array");
    case FieldType::kBoolOrInteger:
      if (value.is_boolean() || value.is_number_integer()) return {};
      return wrong(field, "true, false or an integer");
    case FieldType::kAny: return {};
  }
  return {};
}

bool is_neutral(const Field& field, const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == field.neutral;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();
}

Status check_field(const Field& field, const Json& body) {
  const auto found = body.find(field.name);
  if (found == body.end() || found->is_null()) return {};
  GRAFT_RETURN_IF_ERROR(check_type(field, *found));
  if (field.use == FieldUse::kNeutralOnly && !is_neutral(field, *found)) {
    const std::string name(field.name);
    return Error{ErrorCode::kNotSupported, "'" + name + "' is not supported yet.", name};
  }
  return {};
}

}  // namespace

std::span<const Field> generation_fields() { return kFields; }

const Json* find_field(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

std::vector<Field> fields_of(Endpoint endpoint) {
  std::vector<Field> found;
  for (const auto table : {generation_fields(), dialect_fields()}) {
    for (const Field& field : table) {
      if (overlap(field.where, endpoint)) found.push_back(field);
    }
  }
  return found;
}

Status check_fields(const Json& body, Endpoint endpoint) {
  for (const auto table : {generation_fields(), dialect_fields()}) {
    for (const Field& field : table) {
      if (overlap(field.where, endpoint)) GRAFT_RETURN_IF_ERROR(check_field(field, body));
    }
  }
  return {};
}

Error must_be(const std::string& param, const std::string& expected) {
  return invalid_argument("'" + param + "' must be " + expected + ".", param);
}

std::string element(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

}  // namespace graft::api
