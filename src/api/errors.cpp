#include "api/errors.h"

#include <utility>

#include "api/json_text.h"

namespace graft::api {
namespace {

void append_or_null(std::string& out, const std::string& text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

}  // namespace

ApiError to_api_error(const Error& error) {
  const auto with = [&error](int status, const char* type, const char* code) {
    return ApiError{status, type, error.message, error.param, code};
  };
  switch (error.code) {
    case ErrorCode::kInvalidArgument: return with(400, "invalid_request_error", "invalid_value");
    case ErrorCode::kNotSupported: return with(400, "invalid_request_error", "not_supported");
    case ErrorCode::kNotFound: return with(404, "invalid_request_error", "model_not_found");
    case ErrorCode::kPermissionDenied: return with(403, "permission_error", "forbidden");
    case ErrorCode::kResourceExhausted: return with(429, "rate_limit_error", "overloaded");
    case ErrorCode::kUnavailable: return with(503, "server_error", "unavailable");
    case ErrorCode::kCancelled: return with(503, "server_error", "cancelled");
    case ErrorCode::kDataCorrupt: return with(500, "server_error", "data_corrupt");
    case ErrorCode::kInternal: return with(500, "server_error", "internal_error");
  }
  return with(500, "server_error", "internal_error");
}

std::string error_body(const ApiError& error) {
  std::string out = R"({"error":{"message":)";
  append_json_string(out, error.message);
  out += R"(,"type":)";
  append_json_string(out, error.type);
  out += R"(,"param":)";
  append_or_null(out, error.param);
  out += R"(,"code":)";
  append_or_null(out, error.code);
  return out + "}}";
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.headers = {{"content-type", "application/json"}};
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("retry-after", "1");
  response.body = error_body(error);
  return response;
}

HttpResponse protocol_error(int status, const std::string& message) {
  const bool server_side = status >= 500;
  HttpResponse response =
      error_response(ApiError{status, server_side ? "server_error" : "invalid_request_error",
                              message, "", server_side ? "unavailable" : "bad_request"});
  response.close = true;
  return response;
}

ApiError context_length_exceeded(std::int64_t n_prompt_tokens, std::int64_t n_context_tokens) {
  // It begins as OpenAI's does: clients such as LiteLLM know this error by its words.
  return {400, "invalid_request_error",
          "This model's maximum context length is " + std::to_string(n_context_tokens) +
              " tokens; the prompt has " + std::to_string(n_prompt_tokens) +
              ", and at least one is needed for the answer.",
          "", "context_length_exceeded"};
}

}  // namespace graft::api
