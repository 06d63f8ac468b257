// What a request says its answer must look like, in the four dialects that clients speak: OpenAI's
// response_format, llama-server's grammar and json_schema, vLLM's structured_outputs and its older
// guided_*. At most one constraint in one request.
#pragma once

#include <string_view>

#include "api/generation_call.h"
#include "api/request_json.h"
#include "base/result.h"

namespace graft::api {

// Fills call.constraint. `text` is what `body` was parsed from; check_fields() has passed it.
Status read_constraint(const Json& body, std::string_view text, GenerationCall& call);

}  // namespace graft::api
