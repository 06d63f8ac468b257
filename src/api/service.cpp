#include "api/service.h"

#include <algorithm>
#include <utility>

#include "api/errors.h"
#include "api/routes.h"

namespace graft::api {
namespace {

constexpr std::size_t kShownDigits = 12;
constexpr std::size_t kMaxRequestIdBytes = 128;

// A client's own id is repeated only if it cannot break a header or a log line.
bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

HttpResponse not_ready(Service::State state) {
  HttpResponse response =
      error_response(Error{ErrorCode::kUnavailable,
                           state == Service::State::kLoading ? "The model is being loaded."
                                                             : "The server is shutting down.",
                           {}});
  response.close = state == Service::State::kDraining;
  return response;
}

void add_request_id(HttpResponse& response, const std::string& request_id) {
  for (const Header& header : response.headers) {
    if (header.first == "x-request-id") return;
  }
  response.headers.emplace_back("x-request-id", request_id);
}

}  // namespace

Service::Service(ServiceParts parts)
    : parts_(std::move(parts)),
      fingerprint_("graft-" GRAFT_VERSION +
                   (parts_.facts.base_digest.empty()
                        ? std::string()
                        : "-" + parts_.facts.base_digest.substr(0, kShownDigits))) {}

bool Service::is_heavy(const HttpRequest& request) const {
  const auto found = find_route(request.method, request.target);
  const auto* match = std::get_if<RouteMatch>(&found);
  return match != nullptr && match->route->heavy;
}

Answer Service::answer(const HttpRequest& request, const std::shared_ptr<Waker>& waker) {
  const std::string_view given = request.header("x-request-id");
  const std::string request_id = is_plain_id(given) ? std::string(given) : ids_.next_text("req-");
  auto found = find_route(request.method, request.target);
  Answer answer;
  if (auto* response = std::get_if<HttpResponse>(&found)) {
    answer = std::move(*response);
  } else {
    const auto& match = std::get<RouteMatch>(found);
    const State state = state_.load();
    if (match.route->when_ready && state != State::kReady) {
      answer = not_ready(state);
    } else {
      answer = match.route->function({*this, request, match.path_tail, request_id, waker});
    }
  }
  if (auto* response = std::get_if<HttpResponse>(&answer)) add_request_id(*response, request_id);
  return answer;
}

}  // namespace graft::api
