// The load client against our own server and against servers that misbehave.
#include "http/client/load_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "api/testing/scripted_generation.h"
#include "http/http_server.h"

namespace graft {
namespace {

using std::chrono::milliseconds;

class LoadClientTest : public testing::Test {
 protected:
  LoadClientTest()
      : registry_(api::test_registry()),
        service_({generation_, registry_, prompts_, api::test_facts()}) {
    service_.set_state(api::Service::State::kReady);
    plan_.n_requests = 20;
    plan_.n_streams = 4;
    plan_.make_body = [](std::size_t) {
      return R"({"stream":true,"prompt":"hi","stream_options":{"include_usage":true}})";
    };
    target_.host = "127.0.0.1";
    target_.path = "/v1/completions";
  }

  void start(HttpOptions options = {}) {
    options.port = 0;
    server_ = HttpServer::start(options, service_).value();
    target_.port = server_->port();
  }

  LoadRecord run() {
    auto record = run_load(target_, plan_);
    EXPECT_TRUE(record);
    return std::move(record).value();
  }

  api::ScriptedGeneration generation_;
  api::FakePromptBuilder prompts_;
  Snapshot<RegistrySnapshot> registry_;
  api::Service service_;
  std::unique_ptr<HttpServer> server_;
  LoadTarget target_;
  LoadPlan plan_;
};

TEST_F(LoadClientTest, AClosedLoopKeepsItsConnections) {
  start();
  generation_.set_script({.step = milliseconds(2)});
  const LoadRecord record = run();
  ASSERT_EQ(record.answers.size(), 20U);
  for (const LoadAnswer& answer : record.answers) {
    EXPECT_EQ(answer.failure, "");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.text_times.size(), 3U);
    EXPECT_NE(answer.usage_event.find("\"completion_tokens\":3"), std::string::npos);
    EXPECT_LE(answer.due, answer.text_times.front());
    EXPECT_LE(answer.text_times.front(), answer.text_times.back());
    EXPECT_LE(answer.text_times.back(), answer.end);
  }
  EXPECT_EQ(generation_.submitted().size(), 20U);
  EXPECT_LE(server_->n_connections(), 4U);
}

TEST_F(LoadClientTest, AnOpenLoopSendsWhenRequestsAreDue) {
  start();
  generation_.set_script({.step = milliseconds(40)});
  plan_.n_requests = 5;
  plan_.n_streams = 8;
  for (int i = 0; i < 5; ++i) plan_.due.emplace_back(milliseconds(20 * i));
  const LoadRecord record = run();
  ASSERT_EQ(record.answers.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(record.answers[i].failure, "");
    EXPECT_EQ(record.answers[i].due, record.begin + plan_.due[i]);
  }
  // An answer takes 120 ms: the last began before the first was complete.
  EXPECT_GT(record.answers[0].end, record.answers[4].due);
}

TEST_F(LoadClientTest, LatenciesOfAnOpenLoopIncludeTheWaitForAConnection) {
  start();
  generation_.set_script({.step = milliseconds(20)});
  plan_.n_requests = 2;
  plan_.n_streams = 1;
  plan_.due = {milliseconds(0), milliseconds(1)};
  const LoadRecord record = run();
  EXPECT_GE(record.answers[1].text_times.front() - record.answers[1].due, milliseconds(60));
}

TEST_F(LoadClientTest, RefusalsAndErrorEventsAreFailures) {
  start();
  generation_.set_script({.refuse = Error{ErrorCode::kResourceExhausted, "refused", ""}});
  for (const LoadAnswer& answer : run().answers) {
    EXPECT_EQ(answer.status, 429);
    EXPECT_TRUE(answer.failure.starts_with("status 429: {")) << answer.failure;
  }
  generation_.set_script({.fail_after = 1});
  for (const LoadAnswer& answer : run().answers) {
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.failure.starts_with("error event: ")) << answer.failure;
  }
}

TEST_F(LoadClientTest, AKeptConnectionThatTheServerClosedIsOpenedAnew) {
  HttpOptions options;
  options.idle_timeout = milliseconds(30);
  start(options);
  plan_.n_requests = 2;
  plan_.n_streams = 1;
  plan_.due = {milliseconds(0), milliseconds(300)};
  for (const LoadAnswer& answer : run().answers) EXPECT_EQ(answer.failure, "");
}

TEST_F(LoadClientTest, SilenceEndsAtTheTimeout) {
  start();
  generation_.set_script({.silent = true});
  plan_.n_requests = 2;
  plan_.timeout = milliseconds(100);
  for (const LoadAnswer& answer : run().answers) {
    EXPECT_TRUE(answer.failure.starts_with("no end within 100 ms")) << answer.failure;
  }
  EXPECT_TRUE(generation_.wait_until_idle());
}

TEST_F(LoadClientTest, AStopEndsEverything) {
  start();
  generation_.set_script({.silent = true});
  plan_.stop_requested = [] { return true; };
  const LoadRecord record = run();
  EXPECT_TRUE(record.stopped);
  EXPECT_EQ(record.answers.size(), 4U);
  EXPECT_TRUE(generation_.wait_until_idle());
}

TEST_F(LoadClientTest, NobodyListens) {
  start();
  server_.reset();
  plan_.n_requests = 3;
  for (const LoadAnswer& answer : run().answers) {
    EXPECT_EQ(answer.status, 0);
    EXPECT_TRUE(answer.failure.starts_with("cannot connect: ")) << answer.failure;
  }
  target_.host = "no.such.host.invalid";
  EXPECT_EQ(run_load(target_, plan_).error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace graft
