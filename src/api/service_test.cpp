#include "api/service.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/routes.h"
#include "api/testing/scripted_generation.h"
#include "api/testing/service_call.h"

namespace graft::api {
namespace {

using nlohmann::json;

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() : registry_(test_registry()), service_(parts()) {
    service_.set_state(Service::State::kReady);
  }

  ServiceParts parts() { return {generation_, registry_, prompts_, test_facts()}; }

  HttpResponse call(const std::string& method, const std::string& target,
                    const std::string& body = "", std::vector<Header> headers = {}) {
    return call_service(service_, {method, target, std::move(headers), body});
  }
  HttpResponse chat(const std::string& more) {
    return call("POST", "/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"hi"}])" + more + "}");
  }
  static std::string header(const HttpResponse& response, const std::string& name) {
    return header_of(response, name);
  }

  ScriptedGeneration generation_;
  FakePromptBuilder prompts_;
  Snapshot<RegistrySnapshot> registry_;
  Service service_;
};

TEST_F(ServiceTest, ChatReportsWhatShapedIt) {
  const HttpResponse response =
      chat(R"(,"model":"base","modules":[{"name":"formal","scale":0.5},{"name":"pirate"}])");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(header(response, "x-graft-modules"), "formal@bbbbbbbbbbbb*0.5, pirate@aaaaaaaaaaaa*1");
  const json body = json::parse(response.body);
  EXPECT_EQ(body["graft"]["modules"][0]["name"], "formal");
  EXPECT_EQ(body["model"], "base");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello world");
  const auto attached = generation_.attachments()[0].attachments;
  ASSERT_EQ(attached.size(), 2U);
  EXPECT_EQ(attached[0].scale, 0.5F);
}

TEST_F(ServiceTest, BaseHasNoModulesHeader) {
  const HttpResponse response = chat("");
  EXPECT_EQ(header(response, "x-graft-modules"), "");
  EXPECT_EQ(json::parse(response.body)["graft"]["modules"], json::array());
  EXPECT_TRUE(generation_.attachments()[0].empty());
}

TEST_F(ServiceTest, UnknownModulesAreNeverTheBase) {
  for (const char* more :
       {R"(,"model":"pirat")", R"(,"modules":[{"name":"pirat"}])", R"(,"lora":[{"id":9}])",
        R"(,"model":"gpt-4o")", R"(,"model":"pirate@0000")"}) {
    const HttpResponse response = chat(more);
    EXPECT_EQ(response.status, 404) << more;
    EXPECT_EQ(json::parse(response.body)["error"]["code"], "model_not_found");
  }
  EXPECT_NE(chat(R"(,"model":"pirat","stream":true)").body.find("pirate"), std::string::npos);
  EXPECT_TRUE(generation_.submitted().empty());
}

TEST_F(ServiceTest, SeveralChoicesAreSeveralSubmissionsWithOwnSeeds) {
  const HttpResponse response =
      call("POST", "/v1/completions", R"({"prompt":["ab","cde"],"n":2,"seed":7})");
  EXPECT_EQ(response.status, 200);
  const json body = json::parse(response.body);
  ASSERT_EQ(body["choices"].size(), 4U);
  EXPECT_EQ(body["choices"][3]["index"], 3);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  const auto submitted = generation_.submitted();
  ASSERT_EQ(submitted.size(), 4U);
  EXPECT_EQ(submitted[0].sampling.seed, 7U);
  EXPECT_EQ(submitted[1].sampling.seed, 8U);
  EXPECT_EQ(submitted[2].sampling.seed, 7U);
  EXPECT_EQ(submitted[1].prompt.size(), 2U);
  EXPECT_EQ(submitted[2].prompt.size(), 3U);
  EXPECT_NE(submitted[0].id, submitted[1].id);
}

TEST_F(ServiceTest, FullQueueIs429AndDrainingIs503) {
  Script script;
  script.refuse = Error{ErrorCode::kResourceExhausted, "the queue is full", ""};
  generation_.set_script(script);
  for (const char* more : {"", R"(,"stream":true)"}) {
    const HttpResponse response = chat(more);
    EXPECT_EQ(response.status, 429);
    EXPECT_EQ(header(response, "retry-after"), "1");
  }
  service_.set_state(Service::State::kDraining);
  EXPECT_EQ(chat("").status, 503);
  EXPECT_TRUE(chat("").close);
  EXPECT_EQ(call("GET", "/health").status, 503);
  EXPECT_EQ(call("GET", "/version").status, 200);
  service_.set_state(Service::State::kLoading);
  EXPECT_EQ(call("GET", "/health").status, 503);
  EXPECT_EQ(chat("").status, 503);
}

TEST_F(ServiceTest, BeforeThereIsAModelOnlyOpenRoutesAnswer) {
  Service service;
  for (const Route& route : routes()) {
    const int status =
        call_service(service, {std::string(route.method), path_of(route), {}, "{}"}).status;
    if (route.role != Role::kOpen) {
      EXPECT_EQ(status, 503) << route.path;
    }
  }
  EXPECT_EQ(call_service(service, {"GET", "/health", {}, ""}).status, 503);
  EXPECT_EQ(call_service(service, {"GET", "/version", {}, ""}).status, 200);
  service.open(parts());
  service.set_state(Service::State::kReady);
  EXPECT_EQ(call_service(service, {"GET", "/health", {}, ""}).status, 200);
}

TEST_F(ServiceTest, AFailingEngineIsUnhealthy) {
  Script script;
  script.healthy = false;
  generation_.set_script(script);
  const HttpResponse response = call("GET", "/health");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(json::parse(response.body)["error"]["code"], "unhealthy");
  generation_.set_script({});
  EXPECT_EQ(call("GET", "/health").status, 200);
}

TEST_F(ServiceTest, FailureBeforeTheFirstEventIsAStatus) {
  Script script;
  script.fail_after = 0;
  generation_.set_script(script);
  EXPECT_EQ(chat("").status, 500);
  script.fail_after = 1;
  generation_.set_script(script);
  const HttpResponse response = chat(R"(,"stream":true)");
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find(R"(data: {"error":{"message":"the engine failed")"),
            std::string::npos);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServiceTest, PromptsThatCannotFitAreRefused) {
  const HttpResponse response =
      call("POST", "/v1/completions", R"({"prompt":")" + std::string(2000, 'x') + "\"}");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(call("POST", "/v1/completions", R"({"prompt":""})").status, 400);
  EXPECT_EQ(call("POST", "/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"refuse me"}]})")
                .status,
            400);
}

TEST_F(ServiceTest, RequestIdsAreEchoedOrMade) {
  EXPECT_EQ(header(call("GET", "/health", "", {{"x-request-id", "abc-1"}}), "x-request-id"),
            "abc-1");
  for (const std::string& bad : {std::string(200, 'a'), std::string("a\r\nb: c"), std::string()}) {
    const std::string made =
        header(call("GET", "/health", "", {{"x-request-id", bad}}), "x-request-id");
    EXPECT_TRUE(made.starts_with("req-")) << made;
  }
}

TEST_F(ServiceTest, Models) {
  const json list = json::parse(call("GET", "/v1/models").body);
  ASSERT_EQ(list["data"].size(), 4U);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["parent"], nullptr);
  EXPECT_EQ(list["data"][1]["id"], "base");
  EXPECT_EQ(list["data"][2]["id"], "pirate");
  EXPECT_EQ(list["data"][2]["parent"], "tiny");
  EXPECT_EQ(list["data"][2]["root"], "modules/pirate");
  EXPECT_EQ(list["data"][2]["max_model_len"], 2000);
  for (const auto& [path, status] : {std::pair{"/v1/models/tiny", 200},
                                     {"/v1/models/pirate", 200},
                                     {"/models/pirate", 200},
                                     {"/v1/models/base%3Apirate", 200},
                                     {"/v1/models/pir%61te", 200},
                                     {"/v1/models/none", 404},
                                     {"/v1/models/a%2Fb", 404},
                                     {"/v1/models/a/b", 404},
                                     {"/v1/models/%00", 404},
                                     {"/v1/models/%c0%af", 404},
                                     {"/v1/models/%", 404},
                                     {"/v1/models/%zz", 404},
                                     {"/v1/models/", 404},
                                     {"/v1/models?x=1", 200}}) {
    EXPECT_EQ(call("GET", path).status, status) << path;
  }
}

TEST_F(ServiceTest, UnknownPathsAndMethods) {
  for (const char* path : {"/", "", "*", "/v1", "/v1/chat", "/v1/chat/completions/", "//health",
                           "/health/x", "/../health", "/v1/embedding"}) {
    EXPECT_EQ(call("GET", path).status, 404) << path;
  }
  const HttpResponse response = call("DELETE", "/v1/chat/completions");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(header(response, "allow"), "POST");
  EXPECT_EQ(header(call("POST", "/v1/models/x"), "allow"), "GET");
}

TEST_F(ServiceTest, OnlyJsonBodies) {
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}]})";
  for (const auto& [type, status] : {std::pair{"application/json", 200},
                                     {"Application/JSON; charset=utf-8", 200},
                                     {"application/vnd.api+json", 200},
                                     {"text/plain", 415},
                                     {"multipart/form-data", 415},
                                     {"application/x-www-form-urlencoded", 415}}) {
    EXPECT_EQ(call("POST", "/v1/chat/completions", body, {{"content-type", type}}).status, status)
        << type;
  }
}

TEST_F(ServiceTest, AbandonedWorkIsCancelled) {
  Script script;
  script.endless = true;
  generation_.set_script(script);
  HttpRequest request{"POST", "/v1/completions", {}, R"({"prompt":"x","n":4,"max_tokens":99999})"};
  Answer answer = service_.answer(request, std::make_shared<NoWaker>());
  std::get<std::shared_ptr<Exchange>>(answer)->abandon();
  EXPECT_TRUE(generation_.wait_until_idle());
  answer = service_.answer(request, std::make_shared<NoWaker>());
  answer = HttpResponse{};  // forgotten without a word
  EXPECT_TRUE(generation_.wait_until_idle());
}

TEST(Routes, EveryRouteHasAFunctionAndHeavyOnesAreGuarded) {
  for (const Route& route : routes()) {
    EXPECT_NE(route.function, nullptr);
    // /metrics is long to write, but takes no work from outside.
    if (route.heavy && route.path != "/metrics") {
      EXPECT_TRUE(route.when_ready);
    }
    EXPECT_TRUE(route.path.starts_with("/"));
  }
}

}  // namespace
}  // namespace graft::api
