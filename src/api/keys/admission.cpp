#include "api/keys/admission.h"

#include <string_view>
#include <utility>

#include "api/errors.h"

namespace graft::api {
namespace {

constexpr std::size_t kMaxKeyBytes = 1024;
// Waiting longer than this inside a call helps no client.
constexpr std::int64_t kMaxRetryWaitS = 60;

HttpResponse unauthorized(const std::string& message, const std::string& code) {
  HttpResponse response = error_response(ApiError{401, "invalid_request_error", message, "", code});
  response.headers.emplace_back("www-authenticate", "Bearer");
  return response;
}

bool is_bearer(std::string_view scheme) {
  constexpr std::string_view kBearer = "bearer";
  if (scheme.size() != kBearer.size()) return false;
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    if ((scheme[i] | 0x20) != kBearer[i]) return false;
  }
  return true;
}

// "" when the request has no key.
std::string_view key_text(const HttpRequest& request) {
  const std::string_view authorization = request.header("authorization");
  const std::size_t space = authorization.find(' ');
  if (space != std::string_view::npos && is_bearer(authorization.substr(0, space))) {
    const std::size_t begin = authorization.find_first_not_of(' ', space);
    if (begin != std::string_view::npos) return authorization.substr(begin);
  }
  return request.header("x-api-key");
}

// Holds a key's place while an answer is being made.
class HeldExchange : public Exchange {
 public:
  HeldExchange(std::shared_ptr<Exchange> exchange, KeyPermit permit)
      : exchange_(std::move(exchange)), permit_(std::move(permit)) {}

  Output poll(bool idle) override { return exchange_->poll(idle); }
  void abandon() override { exchange_->abandon(); }
  void shut_down() override { exchange_->shut_down(); }

 private:
  const std::shared_ptr<Exchange> exchange_;
  const KeyPermit permit_;
};

}  // namespace

std::variant<Caller, HttpResponse> admit(const KeyRing& ring, Role role,
                                         const HttpRequest& request) {
  const bool needs_key = role == Role::kAdmin       ? ring.needs_key_for_admin()
                         : role == Role::kInference ? ring.needs_key_for_inference()
                                                    : false;
  const std::string_view text = key_text(request);
  std::shared_ptr<const ApiKey> key;
  if (!text.empty() && text.size() <= kMaxKeyBytes) key = ring.find(text);
  if (!needs_key) return Caller{std::move(key)};
  if (text.empty()) {
    return unauthorized(
        "An API key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
        "missing_api_key");
  }
  if (key == nullptr) return unauthorized("The API key is not valid.", "invalid_api_key");
  if (role == Role::kAdmin && !key->is_admin) {
    return error_response(
        Error{ErrorCode::kPermissionDenied, "This needs an admin key; the key sent is none.", {}});
  }
  return Caller{std::move(key)};
}

std::variant<KeyPermit, HttpResponse> take_place(const Caller& caller) {
  if (caller.key == nullptr) return KeyPermit(nullptr);
  const auto refusal = caller.key->usage->begin(caller.key->limits, KeyUsage::Clock::now());
  if (!refusal) return KeyPermit(caller.key->usage);
  HttpResponse response = error_response(
      ApiError{429, "rate_limit_error", refusal->message, "", "rate_limit_exceeded"});
  for (Header& header : response.headers) {
    if (header.first == "retry-after") header.second = std::to_string(refusal->retry_after_s);
  }
  response.headers.emplace_back("x-should-retry",
                                refusal->retry_after_s <= kMaxRetryWaitS ? "true" : "false");
  return response;
}

Answer hold(Answer answer, KeyPermit permit) {
  auto* exchange = std::get_if<std::shared_ptr<Exchange>>(&answer);
  if (exchange == nullptr || !permit) return answer;
  return std::make_shared<HeldExchange>(std::move(*exchange), std::move(permit));
}

}  // namespace graft::api
