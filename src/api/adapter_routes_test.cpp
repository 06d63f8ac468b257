// The routes that load, unload and list adapters, and requests that wait for one.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>

#include "api/routes.h"
#include "api/testing/scripted_generation.h"
#include "api/testing/service_call.h"
#include "modules/formats/format_test_support.h"

namespace graft::api {
namespace {

using format_test::SafetensorsWriter;
using format_test::TemporaryDirectory;
using nlohmann::json;

class SlowTrial : public ModuleTrial {
 public:
  Status try_out(const std::shared_ptr<const ModuleVersion>&) override {
    while (held) std::this_thread::yield();
    return {};
  }
  std::atomic<bool> held{false};
};

class AdapterRoutesTest : public testing::Test {
 protected:
  AdapterRoutesTest() {
    options_.base_names = {"tiny", "base"};
    options_.root = directory_.path();
    options_.autoload = true;
    options_.default_scales = true;
    write_module("a", 2);
    write_module("team/b", 3);
  }

  Service& service() {
    if (service_ == nullptr) {
      store_ = ModuleStore::create(base_, trial_, options_, {}).value();
      service_ = std::make_unique<Service>(ServiceParts{generation_, store_->registry(), prompts_,
                                                        test_facts(), nullptr, store_.get()});
      service_->set_state(Service::State::kReady);
    }
    return *service_;
  }

  void write_module(const std::string& path, std::int64_t rank) const {
    directory_.write(path + "/adapter_config.json",
                     R"({"peft_type":"LORA","lora_alpha":4,"r":)" + std::to_string(rank) + "}");
    directory_.write(
        path + "/adapter_model.safetensors",
        SafetensorsWriter().add_lora("model.layers.0.mlp.up_proj", rank, 16, 24).finish());
  }

  HttpResponse finish(Answer answer) {
    for (int i = 0; i < 30'000; ++i) {
      if (auto* response = std::get_if<HttpResponse>(&answer)) return std::move(*response);
      Output output = std::get<std::shared_ptr<Exchange>>(answer)->poll(false);
      if (output.whole != nullptr) return std::move(*output.whole);
      if (output.again != nullptr) {
        answer = service().answer(*output.again, std::make_shared<NoWaker>());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no answer";
    return {};
  }
  Answer begin(const std::string& method, const std::string& target, const std::string& body = "",
               std::vector<Header> headers = {{"content-type", "application/json"}}) {
    return service().answer({method, target, std::move(headers), body},
                            std::make_shared<NoWaker>());
  }
  HttpResponse post(const std::string& target, const json& body) {
    return finish(begin("POST", target, body.dump()));
  }
  HttpResponse complete(const std::string& model) {
    return post("/v1/completions", {{"model", model}, {"prompt", "hi"}});
  }
  static std::string header(const HttpResponse& response, const std::string& name) {
    return header_of(response, name);
  }

  // Both shapes of an error say the same.
  static void expect_error(const HttpResponse& response, int status, const std::string& type,
                           const std::string& part) {
    EXPECT_EQ(response.status, status) << response.body;
    const json body = json::parse(response.body);
    EXPECT_EQ(body["object"], "error");
    for (const json& shape : {body, body["error"]}) {
      EXPECT_EQ(shape["type"], type);
      EXPECT_EQ(shape["code"], status);
      EXPECT_TRUE(shape["param"].is_null());
      EXPECT_NE(shape["message"].get<std::string>().find(part), std::string::npos) << response.body;
    }
  }

  TemporaryDirectory directory_;
  BaseModel base_ = format_test::make_base({});
  SlowTrial trial_;
  ModuleStoreOptions options_;
  ScriptedGeneration generation_;
  FakePromptBuilder prompts_;
  std::unique_ptr<ModuleStore> store_;
  std::unique_ptr<Service> service_;
};

TEST_F(AdapterRoutesTest, LoadsAndUnloadsWithVllmsWords) {
  options_.autoload = false;
  HttpResponse response =
      post("/v1/load_lora_adapter", {{"lora_name", "a"}, {"lora_path", "a"}, {"something", 1}});
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.body, "Success: LoRA adapter 'a' added successfully.");
  EXPECT_EQ(header(response, "content-type"), "text/plain; charset=utf-8");
  EXPECT_NE(header(response, "x-request-id"), "");
  EXPECT_EQ(complete("a").status, 200);
  expect_error(post("/v1/load_lora_adapter", {{"lora_name", "a"}, {"lora_path", "a"}}), 400,
               "InvalidUserInput", "has already been loaded");
  EXPECT_EQ(post("/v1/load_lora_adapter",
                 {{"lora_name", "a"}, {"lora_path", "team/b"}, {"load_inplace", true}})
                .status,
            200);
  response = post("/v1/unload_lora_adapter", {{"lora_name", "a"}});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "Success: LoRA adapter 'a' removed successfully.");
  EXPECT_EQ(complete("a").status, 404);
  expect_error(post("/v1/unload_lora_adapter", {{"lora_name", "a"}}), 404, "NotFoundError",
               "The lora adapter 'a' cannot be found.");
}

TEST_F(AdapterRoutesTest, WrongBodiesAreNamed) {
  const auto load = [this](const json& body) { return post("/v1/load_lora_adapter", body); };
  const std::string both = "Both 'lora_name' and 'lora_path' must be provided.";
  expect_error(load(json::object()), 400, "InvalidUserInput", both);
  expect_error(load({{"lora_name", "a"}}), 400, "InvalidUserInput", both);
  expect_error(load({{"lora_name", ""}, {"lora_path", "a"}}), 400, "InvalidUserInput", both);
  expect_error(load({{"lora_name", 1}, {"lora_path", "a"}}), 400, "InvalidUserInput", "lora_name");
  expect_error(load({{"lora_name", "x"}, {"lora_path", "a"}, {"load_inplace", 1}}), 400,
               "InvalidUserInput", "load_inplace");
  expect_error(load({{"lora_name", "x"}, {"lora_path", "a"}, {"base_model_name", 7}}), 400,
               "InvalidUserInput", "base_model_name");
  expect_error(load({{"lora_name", "Bad Name"}, {"lora_path", "a"}}), 400, "InvalidUserInput",
               "is not a module name");
  expect_error(load({{"lora_name", "base"}, {"lora_path", "a"}}), 400, "InvalidUserInput",
               "the base answers to that name");
  expect_error(load({{"lora_name", "x"}, {"lora_path", "ghost"}}), 404, "NotFoundError",
               "does not exist");
  expect_error(post("/v1/unload_lora_adapter", json::object()), 400, "InvalidUserInput",
               "'lora_name' needs to be provided");
  expect_error(finish(begin("POST", "/v1/load_lora_adapter", "{")), 400, "InvalidUserInput",
               "not valid JSON");
  for (const std::vector<Header>& headers :
       {std::vector<Header>{}, std::vector<Header>{{"content-type", "text/plain"}}}) {
    const std::string body = R"({"lora_name":"a","lora_path":"a"})";
    EXPECT_EQ(finish(begin("POST", "/v1/load_lora_adapter", body, headers)).status, 415);
  }
  EXPECT_TRUE(store_->registry().get()->modules.empty());
}

TEST_F(AdapterRoutesTest, BrokenFilesAreTheClientsFault) {
  directory_.write("broken/adapter_config.json", "{}");
  directory_.write("broken/adapter_model.safetensors", "junk");
  expect_error(post("/v1/load_lora_adapter", {{"lora_name", "x"}, {"lora_path", "broken"}}), 400,
               "InvalidUserInput", "'x'");
  const HttpResponse asked = complete("broken");
  EXPECT_EQ(asked.status, 404);
  EXPECT_EQ(json::parse(asked.body)["error"]["code"], "model_not_found");
}

TEST_F(AdapterRoutesTest, WithoutADirectoryTheRoutesAreOff) {
  options_.root = "";
  for (const char* path : {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}) {
    expect_error(post(path, {{"lora_name", "a"}, {"lora_path", "a"}}), 404, "NotFoundError",
                 "--modules-dir");
  }
  EXPECT_EQ(complete("a").status, 404);
}

TEST_F(AdapterRoutesTest, LoadingIsForAdministrators) {
  for (const Route& route : routes()) {
    const bool changes = route.path.find("load_lora") != std::string_view::npos ||
                         (route.path == "/lora-adapters" && route.method == "POST");
    if (changes) {
      EXPECT_EQ(route.role, Role::kAdmin) << route.path;
    }
  }
}

TEST_F(AdapterRoutesTest, SixteenRequestsForAnUnknownNameAreOneLoad) {
  trial_.held = true;
  std::vector<Answer> answers;
  for (int i = 0; i < 16; ++i) {
    answers.push_back(begin("POST", "/v1/completions", R"({"model":"team/b","prompt":"hi"})"));
    ASSERT_TRUE(std::holds_alternative<std::shared_ptr<Exchange>>(answers.back()));
  }
  EXPECT_TRUE(generation_.submitted().empty());
  trial_.held = false;
  for (Answer& answer : answers) {
    const HttpResponse response = finish(std::move(answer));
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(header(response, "x-graft-modules").starts_with("team/b@"));
  }
  EXPECT_EQ(store_->counts().n_loads, 1);
  EXPECT_EQ(store_->counts().n_joined, 15);
  EXPECT_EQ(complete("team/b").status, 200);
}

TEST_F(AdapterRoutesTest, EveryPlaceThatNamesAModuleMayWaitForIt) {
  const json prompt = {{"prompt", "hi"}};
  EXPECT_EQ(post("/m/team/b/v1/completions", prompt).status, 200);
  EXPECT_EQ(finish(begin("POST", "/v1/completions", prompt.dump(),
                         {{"content-type", "application/json"}, {"x-graft-module", "a*0.5"}}))
                .status,
            200);
  EXPECT_EQ(store_->counts().n_loads, 2);
  json list = prompt;
  list["modules"] = {{{"name", "a"}}, {{"name", "team/b"}, {"scale", 2}}};
  ASSERT_TRUE(store_->unload("a"));
  ASSERT_TRUE(store_->unload("team/b"));
  const HttpResponse embedded = post("/m/a/v1/embeddings", {{"input", "hi"}});
  EXPECT_EQ(embedded.status, 200) << embedded.body;
  EXPECT_TRUE(header(embedded, "x-graft-modules").starts_with("a@"));
  ASSERT_TRUE(store_->unload("a"));
  const HttpResponse both = post("/v1/completions", list);
  EXPECT_EQ(both.status, 200);
  EXPECT_EQ(json::parse(both.body)["graft"]["modules"].size(), 2U);
}

TEST_F(AdapterRoutesTest, WhatIsNowhereIs404AtOnce) {
  for (const char* model : {"ghost", "team", "../a", "a@0000", "tiny:ghost", "Team/B"}) {
    const HttpResponse response = complete(model);
    EXPECT_EQ(response.status, 404) << model;
    EXPECT_EQ(json::parse(response.body)["error"]["code"], "model_not_found") << model;
  }
  json list = {{"prompt", "hi"}, {"modules", {{{"name", "team/b"}}, {{"name", "ghost"}}}}};
  EXPECT_EQ(post("/v1/completions", list).status, 404);
  EXPECT_EQ(store_->counts().n_loads, 1) << "a, to see that its digest is another";
}

TEST_F(AdapterRoutesTest, AWaitEndsWithTheServer) {
  trial_.held = true;
  Answer answer = begin("POST", "/v1/completions", R"({"model":"a","prompt":"hi"})");
  Answer load = begin("POST", "/v1/load_lora_adapter", R"({"lora_name":"c","lora_path":"team/b"})");
  for (Answer* one : {&answer, &load}) {
    std::get<std::shared_ptr<Exchange>>(*one)->shut_down();
    EXPECT_EQ(finish(std::move(*one)).status, 503);
  }
  trial_.held = false;
}

TEST_F(AdapterRoutesTest, ListsAdaptersAndSetsTheirDefaultScales) {
  ASSERT_EQ(complete("a").status, 200);
  ASSERT_EQ(complete("team/b").status, 200);
  ASSERT_TRUE(store_->unload("a"));
  json list = json::parse(finish(begin("GET", "/lora-adapters")).body);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["id"], 1);
  EXPECT_EQ(list[0]["name"], "team/b");
  EXPECT_EQ(list[0]["scale"], 0);
  EXPECT_TRUE(list[0]["path"].get<std::string>().ends_with("/team/b"));
  EXPECT_EQ(post("/lora-adapters", json::parse(R"([{"id":1,"scale":0.5}])")).status, 200);
  list = json::parse(finish(begin("GET", "/lora-adapters")).body);
  EXPECT_EQ(list[0]["scale"], 0.5);
  const HttpResponse plain = complete("base");
  EXPECT_NE(header(plain, "x-graft-modules").find("*0.5"), std::string::npos);
  for (const char* body :
       {"{}", "[1]", R"([{"id":1}])", R"([{"id":"1","scale":1}])", R"([{"id":1,"scale":"1"}])",
        R"([{"id":1,"scale":101}])", R"([{"id":1,"scale":1},{"id":1,"scale":0}])",
        R"([{"id":18446744073709551615,"scale":1}])", R"([{"id":1.5,"scale":1}])", "["}) {
    EXPECT_EQ(finish(begin("POST", "/lora-adapters", body)).status, 400) << body;
  }
  EXPECT_EQ(finish(begin("POST", "/lora-adapters", R"([{"id":0,"scale":1}])")).status, 404);
  EXPECT_EQ(post("/lora-adapters", json::array()).status, 200);
  EXPECT_EQ(header(complete("base"), "x-graft-modules"), "");
}

TEST_F(AdapterRoutesTest, DefaultScalesAreOffUnlessAllowed) {
  options_.default_scales = false;
  const HttpResponse response = post("/lora-adapters", json::array());
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(header(response, "allow"), "GET");
}

}  // namespace
}  // namespace graft::api
