// The answers of the routes that load and unload adapters, in vLLM's shape. Errors stand twice in
// the body: under `error`, where clients of the OpenAI API look, and at the top, where operators of
// older vLLM versions do. Pure functions, any thread.
#pragma once

#include <string>

#include "api/exchange.h"
#include "base/result.h"

namespace graft::api {

HttpResponse adapter_error(const Error& error);
// "Success: " and the text, as plain text.
HttpResponse adapter_success(const std::string& text);

}  // namespace graft::api
