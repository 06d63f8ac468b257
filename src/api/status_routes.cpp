// /health and /version.
#include "api/json_text.h"
#include "api/routes.h"

namespace graft::api {
namespace {

HttpResponse json_answer(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.headers = {{"content-type", "application/json"}};
  response.body = std::move(body);
  return response;
}

}  // namespace

Answer answer_health(const RouteCall& call) {
  switch (call.service.state()) {
    case Service::State::kReady:
      if (call.service.parts().generation.healthy()) return json_answer(200, R"({"status":"ok"})");
      return error_response(ApiError{503, "server_error",
                                     "The engine fails: no request is computed.", "", "unhealthy"});
    case Service::State::kLoading:
      return error_response(
          ApiError{503, "server_error", "The model is being loaded.", "", "loading"});
    case Service::State::kDraining: break;
  }
  return error_response(
      ApiError{503, "server_error", "The server is shutting down.", "", "draining"});
}

Answer answer_version(const RouteCall&) {
  return json_answer(200, R"({"version":)" + json_string(GRAFT_VERSION) + "}");
}

}  // namespace graft::api
