// Who may call which route, and what a key sees: through Service::answer, over the whole table.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/keys/key_sources.h"
#include "api/routes.h"
#include "api/testing/scripted_generation.h"
#include "api/testing/service_call.h"

namespace graft::api {
namespace {

using nlohmann::json;

ApiKey make_key(const std::string& name, bool is_admin = false) {
  return {.name = name, .hash = KeyHash::of(name + "-key"), .is_admin = is_admin, .tenant = name};
}

class AccessTest : public testing::Test {
 protected:
  AccessTest()
      : registry_(test_registry()),
        keys_(std::make_shared<const KeyRing>()),
        service_({generation_, registry_, prompts_, test_facts()}, &keys_) {
    service_.set_state(Service::State::kReady);
  }

  void set_keys(std::vector<ApiKey> keys) {
    keys_.set(std::make_shared<const KeyRing>(
        KeyRing::create(std::move(keys), false, *keys_.get()).value()));
  }

  // `key`: "" = none.
  HttpResponse call(const std::string& key, const std::string& method, const std::string& path,
                    const std::string& body = "") {
    std::vector<Header> headers;
    if (!key.empty()) headers.emplace_back("authorization", "Bearer " + key);
    return call_service(service_, {method, path, std::move(headers), body});
  }
  HttpResponse complete(const std::string& key, const std::string& model) {
    return call(key, "POST", "/v1/completions", R"({"prompt":"hi","model":")" + model + "\"}");
  }

  ScriptedGeneration generation_;
  FakePromptBuilder prompts_;
  Snapshot<RegistrySnapshot> registry_;
  Snapshot<KeyRing> keys_;
  Service service_;
};

// vLLM's --api-key protects only some path prefixes. Here every route has a role, and the walk over
// the whole table shows that none is reached without it.
TEST_F(AccessTest, EveryRouteRefusesEveryKeyThatIsNotEnough) {
  set_keys({make_key("user"), make_key("root", true)});
  for (const Route& route : routes()) {
    SCOPED_TRACE(std::string(route.method) + " " + std::string(route.path));
    const auto status = [&](const std::string& key) {
      return call(key, std::string(route.method), path_of(route)).status;
    };
    const auto is_denied = [](int value) { return value == 401 || value == 403; };
    const bool is_open = route.role == Role::kOpen;
    for (const char* wrong : {"", "wrong", "user-key2", "user"}) {
      EXPECT_EQ(status(wrong) == 401, !is_open) << wrong;
    }
    EXPECT_EQ(status("user-key") == 403, route.role == Role::kAdmin);
    EXPECT_NE(status("user-key"), 401);
    EXPECT_FALSE(is_denied(status("root-key")));
  }
}

TEST_F(AccessTest, WithoutKeysAllIsOpen) {
  for (const Route& route : routes()) {
    const int status = call("any", std::string(route.method), path_of(route)).status;
    EXPECT_NE(status, 401) << route.path;
    EXPECT_NE(status, 403) << route.path;
  }
}

TEST_F(AccessTest, OnlyStatusRoutesAreOpen) {
  // A new open route is a decision: it is added here too.
  const std::set<std::string_view> open = {"/health", "/v1/health", "/version", "/load",
                                           "/metrics"};
  for (const Route& route : routes()) {
    if (route.role != Role::kOpen) continue;
    EXPECT_EQ(open.count(route.path), 1U) << route.path;
    EXPECT_EQ(route.method, "GET") << route.path;
  }
}

TEST_F(AccessTest, AnAdminKeyAloneLeavesInferenceOpen) {
  set_keys({make_key("root", true)});
  EXPECT_EQ(complete("", "base").status, 200);
  EXPECT_EQ(complete("any", "base").status, 200);
}

TEST_F(AccessTest, RefusalsHaveOpenAisShape) {
  set_keys({make_key("user")});
  const HttpResponse missing = complete("", "base");
  EXPECT_EQ(missing.status, 401);
  EXPECT_EQ(header_of(missing, "www-authenticate"), "Bearer");
  EXPECT_EQ(header_of(missing, "content-type"), "application/json");
  EXPECT_NE(header_of(missing, "x-request-id"), "");
  const json error = json::parse(missing.body)["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["code"], "missing_api_key");
  EXPECT_TRUE(error["param"].is_null());
  const HttpResponse wrong = complete("sk-123456", "base");
  EXPECT_EQ(json::parse(wrong.body)["error"]["code"], "invalid_api_key");
  EXPECT_EQ(wrong.body.find("sk-123456"), std::string::npos);
}

TEST_F(AccessTest, KeysComeInTwoHeaders) {
  set_keys({make_key("user")});
  const auto status = [&](std::vector<Header> headers) {
    return call_service(service_, {"GET", "/v1/models", std::move(headers), ""}).status;
  };
  EXPECT_EQ(status({{"authorization", "Bearer user-key"}}), 200);
  EXPECT_EQ(status({{"authorization", "bearer  user-key"}}), 200);
  EXPECT_EQ(status({{"x-api-key", "user-key"}}), 200);
  EXPECT_EQ(status({{"authorization", "Basic abc"}, {"x-api-key", "user-key"}}), 200);
  EXPECT_EQ(status({{"authorization", "Bearer wrong"}, {"x-api-key", "user-key"}}), 401);
  for (const char* bad : {"user-key", "Bearer", "Bearer ", "Beareruser-key", "Bearer user-key,x",
                          "Basic user-key", "bEARER user-ke"}) {
    EXPECT_EQ(status({{"authorization", bad}}), 401) << bad;
  }
  EXPECT_EQ(status({{"authorization", "Bearer " + std::string(30000, 'a')}}), 401);
}

TEST_F(AccessTest, ForbiddenModulesDoNotExist) {
  ApiKey some = make_key("user");
  some.modules = {"formal"};
  set_keys({some, make_key("all")});
  // By name, by list, by id, by version: as if it were not there, near names included.
  for (const std::string& body :
       {std::string(R"("model":"pirate")"), std::string(R"("model":"pirate@aaaaaa")"),
        std::string(R"("model":"base:pirate")"), std::string(R"("modules":[{"name":"pirate"}])"),
        std::string(R"("lora":[{"id":0}])")}) {
    const std::string request = R"({"prompt":"hi",)" + body + "}";
    EXPECT_EQ(call("all-key", "POST", "/v1/completions", request).status, 200) << body;
    const HttpResponse refused = call("user-key", "POST", "/v1/completions", request);
    EXPECT_EQ(refused.status, 404) << body;
    EXPECT_EQ(json::parse(refused.body)["error"]["code"], "model_not_found");
  }
  const auto without_name = [](std::string text, const std::string& name) {
    for (std::size_t at = 0; (at = text.find(name)) != std::string::npos;) {
      text.replace(at, name.size(), "NAME");
    }
    return text;
  };
  EXPECT_EQ(without_name(complete("user-key", "pirate").body, "pirate"),
            without_name(complete("user-key", "mirage").body, "mirage"));
  EXPECT_EQ(complete("user-key", "pirat").body.find("pirate"), std::string::npos);
  EXPECT_EQ(call("user-key", "GET", "/v1/models/pirate").status, 404);
  EXPECT_EQ(complete("user-key", "formal").status, 200);
}

TEST_F(AccessTest, NoRouteNamesAForbiddenModule) {
  ApiKey some = make_key("user");
  some.modules = {"formal"};
  set_keys({some});
  for (const Route& route : routes()) {
    if (route.method != "GET" || route.path.ends_with("/*") || route.role != Role::kInference) {
      continue;
    }
    const std::string body = call("user-key", "GET", std::string(route.path)).body;
    EXPECT_EQ(body.find("pirate"), std::string::npos) << route.path << ": " << body;
  }
  EXPECT_NE(call("user-key", "GET", "/v1/models").body.find("formal"), std::string::npos);
}

TEST_F(AccessTest, SubmissionsCarryTheTenant) {
  ApiKey key = make_key("user");
  key.tenant = "team-a";
  EXPECT_EQ(complete("", "base").status, 200);
  set_keys({key});
  EXPECT_EQ(complete("user-key", "base").status, 200);
  EXPECT_EQ(generation_.tenants(), (std::vector<std::string>{"", "team-a"}));
}

// A chat's remembered tokens are shared as its cached prefix is: not with other tenants or salts.
TEST_F(AccessTest, ChatsAreRememberedForTheirTenantAndSalt) {
  ApiKey same = make_key("same");
  same.tenant = "user";
  set_keys({make_key("user"), same, make_key("other")});
  const auto chat = [&](const std::string& key, const std::string& fields) {
    const std::string body =
        R"({"model":"base","messages":[{"role":"user","content":"hi"}])" + fields + "}";
    EXPECT_EQ(call(key, "POST", "/v1/chat/completions", body).status, 200);
    return prompts_.owners().back();
  };
  const auto owner = chat("user-key", "");
  ASSERT_TRUE(owner);
  EXPECT_EQ(chat("same-key", ""), owner);
  EXPECT_NE(chat("other-key", ""), owner);
  EXPECT_NE(chat("user-key", R"(,"cache_salt":"s")"), owner);
  EXPECT_EQ(chat("user-key", R"(,"cache_prompt":false)"), std::nullopt);
  EXPECT_EQ(chat("user-key", R"(,"cache_salt":"s")"), chat("same-key", R"(,"cache_salt":"s")"));
}

TEST_F(AccessTest, ConcurrencyOfAKeyIsLimitedUntilAnswersEnd) {
  ApiKey key = make_key("user");
  key.limits.max_concurrent = 2;
  set_keys({key, make_key("other")});
  Script script;
  script.endless = true;
  generation_.set_script(script);
  const HttpRequest request{
      "POST", "/v1/completions", {{"authorization", "Bearer user-key"}}, R"({"prompt":"x"})"};
  Answer first = service_.answer(request, std::make_shared<NoWaker>());
  Answer second = service_.answer(request, std::make_shared<NoWaker>());
  const HttpResponse refused = call_service(service_, request);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(header_of(refused, "retry-after"), "1");
  EXPECT_EQ(header_of(refused, "x-should-retry"), "true");
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(call("user-key", "GET", "/v1/models").status, 200);  // costs nothing
  first = HttpResponse{};
  Answer third = service_.answer(request, std::make_shared<NoWaker>());
  EXPECT_EQ(third.index(), 1U);
  EXPECT_EQ(call_service(service_, request).status, 429);
  // Another key is not concerned; and what fails gives its place back at once.
  generation_.set_script({});
  EXPECT_EQ(complete("other-key", "base").status, 200);
  second = HttpResponse{};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(complete("user-key", "none").status, 404);
  EXPECT_EQ(complete("user-key", "base").status, 200);
  EXPECT_EQ(keys_.get()->find("user-key")->usage->n_running(), 1);
}

TEST_F(AccessTest, RequestsAndTokensPerMinute) {
  ApiKey requests = make_key("requests");
  requests.limits.requests_per_minute = 3;
  ApiKey tokens = make_key("tokens");
  tokens.limits.tokens_per_minute = 600;
  set_keys({requests, tokens});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(complete("requests-key", "base").status, 200);
  const HttpResponse refused = complete("requests-key", "base");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(header_of(refused, "retry-after"), "20");

  const std::string body = R"({"prompt":")" + std::string(900, 'x') + "\"}";
  EXPECT_EQ(call("tokens-key", "POST", "/v1/completions", body).status, 200);
  const HttpResponse spent = call("tokens-key", "POST", "/v1/completions", body);
  EXPECT_EQ(spent.status, 429);
  // 903 of 600 tokens: 303 in debt and one to spend, at 10 a second.
  EXPECT_EQ(header_of(spent, "retry-after"), "31");
  EXPECT_EQ(header_of(spent, "x-should-retry"), "true");
}

TEST_F(AccessTest, BrowsersGetNoPermission) {
  const HttpResponse preflight = call_service(
      service_, {"OPTIONS",
                 "/v1/chat/completions",
                 {{"origin", "https://evil.example"}, {"access-control-request-method", "POST"}},
                 ""});
  EXPECT_EQ(preflight.status, 405);
  const HttpResponse plain =
      call_service(service_, {"GET", "/v1/models", {{"origin", "https://evil.example"}}, ""});
  for (const HttpResponse& response : {preflight, plain}) {
    for (const Header& header : response.headers) {
      EXPECT_FALSE(header.first.starts_with("access-control-")) << header.first;
    }
  }
}

}  // namespace
}  // namespace graft::api
