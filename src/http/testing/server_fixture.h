// For tests: an HttpServer over a Service with a scripted engine, on a free port.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "api/testing/scripted_generation.h"
#include "http/http_server.h"
#include "http/testing/raw_client.h"
#include "metrics/http_counters.h"

namespace graft {

inline constexpr const char* kChat = "/v1/chat/completions";
inline const std::string kStreamBody =
    R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})";
inline const std::string kPlainBody = R"({"messages":[{"role":"user","content":"hi"}]})";

class ServerFixture : public testing::Test {
 protected:
  ServerFixture()
      : registry_(api::test_registry()),
        keys_(std::make_shared<const api::KeyRing>()),
        service_({generation_, registry_, prompts_, api::test_facts()}, &keys_) {
    options_.port = 0;
    service_.set_state(api::Service::State::kReady);
  }

  void start() {
    auto server = HttpServer::start(options_, service_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(server).value();
  }
  RawClient client() { return RawClient(server_->port()); }

  bool wait_for_connections(std::size_t n) {
    for (int i = 0; i < 5000; ++i) {
      if (server_->n_connections() == n) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  // As the metrics count them.
  std::int64_t n_answers(int status) {
    const auto& known = HttpCounters::kStatuses;
    const auto* found = std::find(known.begin(), known.end(), status);
    return service_.http_counters().n_answers(static_cast<std::size_t>(found - known.begin()));
  }

  static std::size_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::size_t n_pages = 0;
    statm >> n_pages >> n_pages;
    return n_pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }

  api::ScriptedGeneration generation_;
  api::FakePromptBuilder prompts_;
  Snapshot<RegistrySnapshot> registry_;
  Snapshot<api::KeyRing> keys_;
  api::Service service_;
  HttpOptions options_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace graft
