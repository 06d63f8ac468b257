#include "api/service.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "api/errors.h"
#include "api/logged_exchange.h"
#include "api/routes.h"
#include "api/trace_context.h"
#include "base/check.h"
#include "base/log.h"

namespace graft::api {
namespace {

constexpr std::size_t kShownDigits = 12;
constexpr std::size_t kMaxRequestIdBytes = 128;
constexpr std::size_t kMaxShownBytes = 200;

// A client's own id is repeated only if it cannot break a header or a log line.
bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

// What a client wrote, fit for a log.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, kMaxShownBytes));
  for (char& c : out) c = c > 0x20 && c < 0x7F ? c : '?';
  return out;
}

std::shared_ptr<RequestLine> begin_line(const HttpRequest& request, std::string request_id) {
  auto line = std::make_shared<RequestLine>();
  line->begin = request.received_at;
  line->request_id = std::move(request_id);
  line->trace_id = trace_id_of(request.header("traceparent")).value_or("");
  line->method = shown(request.method);
  line->path = shown(std::string_view(request.target).substr(0, request.target.find('?')));
  return line;
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

HttpResponse not_here() {
  return error_response(
      ApiError{404, "invalid_request_error", "This port has no such path.", "", "not_found"});
}

void add_request_id(HttpResponse& response, const std::string& request_id) {
  for (const Header& header : response.headers) {
    if (header.first == "x-request-id") return;
  }
  response.headers.emplace_back("x-request-id", request_id);
}

}  // namespace

Service::Service(ServiceParts parts, const Snapshot<KeyRing>* keys) : Service(keys) {
  open(std::move(parts));
}

void Service::open(ServiceParts parts) {
  GRAFT_CHECK(!parts_ && state_.load() == State::kLoading);
  parts_.emplace(std::move(parts));
  fingerprint_ = "graft-" GRAFT_VERSION;
  if (const std::string& digest = parts_->facts.base_digest; !digest.empty()) {
    fingerprint_ += "-" + digest.substr(0, kShownDigits);
  }
}

Status Service::submit(const Caller& caller, Submission submission) {
  submission.tenant = caller.tenant();
  submission.sink = caller.metered(std::move(submission.sink));
  return parts().generation.submit(std::move(submission));
}

Status Service::submit_group(const Caller& caller, std::vector<Submission> choices) {
  for (Submission& choice : choices) {
    choice.tenant = caller.tenant();
    choice.sink = caller.metered(std::move(choice.sink));
  }
  return parts().generation.submit_group(std::move(choices));
}

bool Service::is_heavy(const HttpRequest& request) const {
  const auto found = find_route(request.method, request.target);
  const auto* match = std::get_if<RouteMatch>(&found);
  return match != nullptr && match->route->heavy;
}

std::string Service::request_id_of(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  return is_plain_id(given) ? std::string(given) : ids_.next_text("req-");
}

std::optional<HttpResponse> Service::refuse_early(const HttpRequest& head) {
  auto way = find_way(head);
  auto* refusal = std::get_if<HttpResponse>(&way);
  if (refusal == nullptr) return std::nullopt;
  finish(*refusal, *begin_line(head, request_id_of(head)));
  return std::move(*refusal);
}

Answer Service::answer(const HttpRequest& request, const std::shared_ptr<Waker>& waker) {
  const auto line = begin_line(request, request_id_of(request));
  Answer answer = dispatch_or_error(request, line, waker);
  if (auto* response = std::get_if<HttpResponse>(&answer)) {
    finish(*response, *line);
    return answer;
  }
  return std::make_shared<LoggedExchange>(std::move(std::get<std::shared_ptr<Exchange>>(answer)),
                                          line, http_counters_);
}

// Every answer that is no exchange passes here.
void Service::finish(HttpResponse& response, const RequestLine& line) {
  add_request_id(response, line.request_id);
  http_counters_.count(response.status);
  log_request(line, response.status);
}

// The only way to a route's function: past its role.
std::variant<Service::Way, HttpResponse> Service::find_way(const HttpRequest& request) const {
  auto found = find_route(request.method, request.target);
  if (auto* response = std::get_if<HttpResponse>(&found)) return std::move(*response);
  auto& [route, path_tail, path_module] = std::get<RouteMatch>(found);
  if (watched_ != nullptr && route->role != Role::kOpen) return not_here();

  auto admission = admit(*keys_.get(), route->role, request);
  if (auto* refusal = std::get_if<HttpResponse>(&admission)) return std::move(*refusal);

  const State state = watched_ == nullptr ? state_.load() : watched_->state();
  const bool needs_model = route->role != Role::kOpen;
  if ((state == State::kLoading && needs_model) || (state != State::kReady && route->when_ready)) {
    return not_ready(state);
  }
  return Way{route, std::move(path_tail), std::move(path_module),
             std::move(std::get<Caller>(admission))};
}

Answer Service::dispatch_or_error(const HttpRequest& request,
                                  const std::shared_ptr<RequestLine>& line,
                                  const std::shared_ptr<Waker>& waker) {
  try {
    return dispatch(request, line, waker);
  } catch (const std::exception& error) {
    log_error("request " + line->request_id + " failed: " + error.what());
    return error_response(internal_error("The request could not be processed."));
  }
}

Answer Service::dispatch(const HttpRequest& request, const std::shared_ptr<RequestLine>& line,
                         const std::shared_ptr<Waker>& waker) {
  auto found = find_way(request);
  if (auto* refusal = std::get_if<HttpResponse>(&found)) return std::move(*refusal);
  const auto& [route, path_tail, path_module, caller] = std::get<Way>(found);
  // Those who watch ask many times a second.
  if (route->role == Role::kOpen) line->level = LogLevel::kDebug;
  line->tenant = shown(caller.tenant());
  const bool takes_place = route->heavy && route->role == Role::kInference;
  auto place = takes_place ? take_place(caller) : KeyPermit(nullptr);
  if (auto* refusal = std::get_if<HttpResponse>(&place)) return std::move(*refusal);
  Service& subject = watched_ == nullptr ? *this : *watched_;
  Answer answer = route->function(
      {subject, request, path_tail, path_module, line->request_id, waker, caller, line});
  return hold(std::move(answer), std::move(std::get<KeyPermit>(place)));
}

}  // namespace graft::api
