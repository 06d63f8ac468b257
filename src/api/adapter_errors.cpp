#include "api/adapter_errors.h"

#include "api/json_text.h"

namespace graft::api {
namespace {

struct Shown {
  int status = 500;
  const char* type = "InternalServerError";
};

Shown shown(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotSupported:
    case ErrorCode::kDataCorrupt: return {400, "InvalidUserInput"};
    case ErrorCode::kNotFound: return {404, "NotFoundError"};
    case ErrorCode::kPermissionDenied: return {403, "PermissionDeniedError"};
    case ErrorCode::kResourceExhausted: return {429, "RateLimitError"};
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled: return {503, "ServiceUnavailableError"};
    case ErrorCode::kInternal: break;
  }
  return {};
}

}  // namespace

HttpResponse adapter_error(const Error& error) {
  const auto [status, type] = shown(error.code);
  const std::string fields = R"("message":)" + json_string(error.message) + R"(,"type":")" + type +
                             R"(","param":null,"code":)" + std::to_string(status);
  HttpResponse response;
  response.status = status;
  response.headers = {{"content-type", "application/json"}};
  if (status == 429 || status == 503) response.headers.emplace_back("retry-after", "1");
  response.body = R"({"error":{)" + fields + R"(},"object":"error",)" + fields + "}";
  return response;
}

HttpResponse adapter_success(const std::string& text) {
  HttpResponse response;
  response.headers = {{"content-type", "text/plain; charset=utf-8"}};
  response.body = "Success: " + text;
  return response;
}

}  // namespace graft::api
