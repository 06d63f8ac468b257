// Errors as clients see them: {"error": {message, type, param, code}} with an HTTP status. The only
// place that maps ErrorCode to statuses. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "api/exchange.h"
#include "base/result.h"

namespace graft::api {

struct ApiError {
  int status = 500;
  std::string type;  // "invalid_request_error", "server_error", ...
  std::string message;
  std::string param;  // request field at fault; "" = null
  std::string code;   // machine-readable reason; "" = null
};

ApiError to_api_error(const Error& error);

// {"error": {...}} without a line end.
std::string error_body(const ApiError& error);
// A whole answer. 429 and 503 carry Retry-After.
HttpResponse error_response(const ApiError& error);
inline HttpResponse error_response(const Error& error) {
  return error_response(to_api_error(error));
}

// For what goes wrong below the level of routes, e.g. 413 or 431; the connection closes.
HttpResponse protocol_error(int status, const std::string& message);

ApiError context_length_exceeded(std::int64_t n_prompt_tokens, std::int64_t n_context_tokens);

}  // namespace graft::api
