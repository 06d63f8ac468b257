// The body of /v1/embeddings.
#include <cstddef>
#include <string>
#include <utility>

#include "api/embedding_call.h"
#include "api/parse_common.h"

namespace graft::api {
namespace {

constexpr std::size_t kMaxInputs = 2048;
constexpr std::size_t kMaxValues = std::size_t{1} << 22;  // of one answer: 16 MiB of floats

Status read_form(const Json& body, const ModelFacts& facts, EmbeddingCall& call) {
  if (const Json* format = find_field(body, "encoding_format")) {
    const auto& name = format->get_ref<const std::string&>();
    if (name != "float" && name != "base64") {
      return invalid_argument("'encoding_format' must be \"float\" or \"base64\".",
                              "encoding_format");
    }
    call.base64 = name == "base64";
  }
  call.n_dimensions = facts.n_embedding_values;
  const Json* dimensions = find_field(body, "dimensions");
  if (dimensions == nullptr) return {};
  if (dimensions->get<double>() > facts.n_embedding_values) {
    return invalid_argument("'dimensions' must be at most " +
                                std::to_string(facts.n_embedding_values) +
                                ", the length of this model's embeddings.",
                            "dimensions");
  }
  call.n_dimensions = dimensions->get<std::int32_t>();
  return {};
}

}  // namespace

Result<EmbeddingCall> parse_embeddings_call(std::string_view body, const ModelFacts& facts) {
  GRAFT_ASSIGN_OR_RETURN(const Json json, parse_request_json(body));
  GRAFT_RETURN_IF_ERROR(check_fields(json, Endpoint::kEmbeddings));
  EmbeddingCall call;
  GRAFT_RETURN_IF_ERROR(read_modules(json, call.text));
  GRAFT_RETURN_IF_ERROR(read_form(json, facts, call));
  GRAFT_RETURN_IF_ERROR(read_truncation(json, call.text));
  GRAFT_RETURN_IF_ERROR(read_cache_rules(json, call.text));
  if (const Json* value = find_field(json, "add_special_tokens")) {
    call.text.add_special = value->get<bool>();
  }
  call.text.stop.max_tokens = 0;
  GRAFT_ASSIGN_OR_RETURN(call.text.prompts, read_prompts(json, "input", kMaxInputs, facts));
  if (call.text.prompts.size() * static_cast<std::size_t>(call.n_dimensions) > kMaxValues) {
    return invalid_argument("The answer would have more than " + std::to_string(kMaxValues) +
                                " numbers; send fewer inputs at once or ask for fewer dimensions.",
                            "input");
  }
  return call;
}

}  // namespace graft::api
