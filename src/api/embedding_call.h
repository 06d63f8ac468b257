// EmbeddingCall: what a client asked for in /v1/embeddings, typed and validated, with names and
// texts still unresolved. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/generation_call.h"
#include "base/result.h"

namespace graft::api {

struct EmbeddingCall {
  GenerationCall text;            // model, modules and the inputs as prompts
  std::int32_t n_dimensions = 0;  // the first ones are kept and scaled to length 1 again
  bool base64 = false;
};

// Errors: kInvalidArgument and kNotSupported, naming the field in `param`. Requires: a model that
// can make embeddings.
Result<EmbeddingCall> parse_embeddings_call(std::string_view body, const ModelFacts& facts);

}  // namespace graft::api
