// /metrics and /load, on the main listener and on one of their own; and that every answer is
// counted once, whichever way it ends.
#include <gtest/gtest.h>

#include "api/testing/scripted_generation.h"
#include "api/testing/service_call.h"

namespace graft::api {
namespace {

class MetricsRoutesTest : public testing::Test {
 protected:
  MetricsRoutesTest()
      : registry_(test_registry()),
        service_({generation_, registry_, prompts_, test_facts(), nullptr, nullptr, observed()}),
        monitor_(Service::Watch{service_}) {
    service_.set_state(Service::State::kReady);
    monitor_.set_state(Service::State::kReady);
  }

  Observation observed() const {
    Observation observation;
    observation.counters = &counters_;
    return observation;
  }
  static HttpResponse get(Service& service, const std::string& path) {
    return call_service(service, {"GET", path, {}, ""});
  }
  HttpRequest completion(const std::string& more = "") const {
    return {"POST", "/v1/completions", {}, R"({"prompt":"hi")" + more + "}"};
  }
  bool metrics_have(const std::string& line) {
    const std::string body = get(service_, "/metrics").body;
    return body.find("\n" + line + "\n") != std::string::npos;
  }

  ScriptedGeneration generation_;
  FakePromptBuilder prompts_;
  Snapshot<RegistrySnapshot> registry_;
  ServingCounters counters_;
  Service service_;
  Service monitor_;
};

TEST_F(MetricsRoutesTest, MetricsShowTheRegistryAndTheCounters) {
  ServingCounters::set(counters_.n_running, 2);
  const HttpResponse response = get(service_, "/metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(header_of(response, "content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_TRUE(metrics_have("graft_requests_running 2"));
  EXPECT_TRUE(metrics_have("graft_module_resident{module=\"pirate\",version=\"aaaaaaaaaaaa\"} 1"));
  EXPECT_NE(response.body.find("vllm:lora_requests_info{max_lora=\"200\","), std::string::npos);
}

TEST_F(MetricsRoutesTest, LoadIsWhatRunsAndWaits) {
  ServingCounters::set(counters_.n_running, 2);
  ServingCounters::set(counters_.n_waiting, 3);
  EXPECT_EQ(get(service_, "/load").body, R"({"server_load":5})");
}

TEST_F(MetricsRoutesTest, TheMonitorAnswersOpenRoutesInTheServersName) {
  EXPECT_EQ(get(monitor_, "/health").status, 200);
  EXPECT_EQ(get(monitor_, "/load").status, 200);
  EXPECT_EQ(get(monitor_, "/metrics").status, 200);
  EXPECT_EQ(get(monitor_, "/v1/models").status, 404);
  EXPECT_EQ(call_service(monitor_, completion()).status, 404);
  service_.set_state(Service::State::kDraining);
  EXPECT_EQ(get(monitor_, "/health").status, 503);
  EXPECT_EQ(get(monitor_, "/metrics").status, 200);
}

TEST_F(MetricsRoutesTest, ThereAreMetricsBeforeThereIsAModel) {
  Service loading;
  Service monitor(Service::Watch{loading});
  monitor.set_state(Service::State::kReady);
  EXPECT_EQ(get(monitor, "/metrics").status, 200);
  EXPECT_EQ(get(monitor, "/load").body, R"({"server_load":0})");
  EXPECT_EQ(get(monitor, "/health").status, 503);
}

TEST_F(MetricsRoutesTest, EveryAnswerIsCountedOnce) {
  const auto n_of = [&](int status) {
    for (std::size_t i = 0; i < HttpCounters::kStatuses.size(); ++i) {
      if (HttpCounters::kStatuses[i] == status) return service_.http_counters().n_answers(i);
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(call_service(service_, completion()).status, 200);
  EXPECT_EQ(call_service(service_, completion(R"(,"stream":true)")).status, 200);
  EXPECT_EQ(call_service(service_, completion(R"(,"n":-1)")).status, 400);
  generation_.set_script({.fail_after = 0});
  EXPECT_EQ(call_service(service_, completion()).status, 500);
  EXPECT_EQ(n_of(200), 2);
  EXPECT_EQ(n_of(400), 1);
  EXPECT_EQ(n_of(500), 1);
  const HttpResponse failed =
      call_service(service_, {"POST",
                              "/v1/chat/completions",
                              {},
                              R"({"messages":[{"role":"user","content":"throw at me"}]})"});
  EXPECT_EQ(failed.status, 500);
  EXPECT_NE(header_of(failed, "x-request-id"), "");
  EXPECT_EQ(n_of(500), 2);

  generation_.set_script({.silent = true});
  {
    const Answer abandoned = service_.answer(completion(), std::make_shared<NoWaker>());
    std::get<std::shared_ptr<Exchange>>(abandoned)->abandon();
    const Answer dropped = service_.answer(completion(), std::make_shared<NoWaker>());
  }
  EXPECT_EQ(n_of(499), 2);
  EXPECT_TRUE(generation_.wait_until_idle());
}

}  // namespace
}  // namespace graft::api
