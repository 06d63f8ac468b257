// For tests: one request to a Service, waited for, without HTTP. One thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "api/routes.h"
#include "api/service.h"

namespace graft::api {

class NoWaker : public Waker {
 public:
  void wake() override {}
};

// The whole answer, the pieces of a streamed body joined.
inline HttpResponse call_service(Service& service, const HttpRequest& request) {
  Answer answer = service.answer(request, std::make_shared<NoWaker>());
  if (auto* response = std::get_if<HttpResponse>(&answer)) return std::move(*response);
  const auto& exchange = std::get<std::shared_ptr<Exchange>>(answer);
  HttpResponse response;
  for (int i = 0; i < 10'000; ++i) {
    Output output = exchange->poll(false);
    if (output.whole != nullptr) return std::move(*output.whole);
    if (output.head != nullptr) response = *output.head;
    response.body += output.bytes;
    if (output.end) return response;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "no answer";
  return response;
}

// "" when there is none.
inline std::string header_of(const HttpResponse& response, const std::string& name) {
  for (const Header& entry : response.headers) {
    if (entry.first == name) return entry.second;
  }
  return "";
}

// A path that leads to the route.
inline std::string path_of(const Route& route) {
  std::string path(route.path);
  if (path.ends_with('*')) path.replace(path.size() - 1, 1, "pirate");
  return path;
}

}  // namespace graft::api
