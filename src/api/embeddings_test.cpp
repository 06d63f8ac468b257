// /v1/embeddings below HTTP: what is read of a body, base64, and exchanges whose inputs are more
// than run at once, fail, or are given up.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/base64.h"
#include "api/embedding_answer.h"
#include "api/embedding_call.h"
#include "api/testing/scripted_generation.h"
#include "api/testing/service_call.h"

namespace graft::api {
namespace {

using nlohmann::json;

std::string base64(const std::string& text) {
  std::string out;
  append_base64(out, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  return out;
}

// The vectors of RFC 4648.
TEST(Base64, PadsAsTheStandardSays) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xFF\xFE"), "//4=");
}

TEST(EmbeddingAnswer, CutVectorsHaveTheirLengthAgain) {
  EmbeddingAnswer answer({.model = "m", .graft_json = "{}", .n_inputs = 2, .n_dimensions = 2});
  const std::vector<float> values = {0.3F, 0.4F, 0.5F, 0.7F};
  answer.add(1, values);
  EXPECT_FALSE(answer.complete());
  answer.add(0, std::vector<float>{0, 0, 1, 0});  // nothing of it is left
  ASSERT_TRUE(answer.complete());
  const json data = json::parse(answer.body())["data"];
  EXPECT_NEAR(data[1]["embedding"][0].get<double>(), 0.6, 1e-6);
  EXPECT_NEAR(data[1]["embedding"][1].get<double>(), 0.8, 1e-6);
  EXPECT_EQ(data[0]["embedding"], json({0, 0}));
}

Result<EmbeddingCall> parse(const std::string& body) {
  return parse_embeddings_call(body, test_facts());
}

TEST(EmbeddingCall, WhatIsReadAndWhatIsRefused) {
  const auto call = parse(R"({"input":[[1,2],[3]],"encoding_format":"base64","dimensions":3,
                              "cache_salt":"s","add_special_tokens":false,"user":"u"})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->text.prompts.size(), 2U);
  EXPECT_EQ(call->n_dimensions, 3);
  EXPECT_TRUE(call->base64);
  EXPECT_FALSE(call->text.add_special);
  EXPECT_EQ(call->text.prefix_cache.salt, "s");
  EXPECT_EQ(parse(R"({"input":"a"})")->n_dimensions, 4);
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"({})", "input"},
           {R"({"input":[]})", "input"},
           {R"({"input":7})", "input"},
           {R"({"input":[1.5]})", "input[0]"},
           {R"({"input":"a","dimensions":0})", "dimensions"},
           {R"({"input":"a","dimensions":5})", "dimensions"},
           {R"({"input":"a","dimensions":1e300})", "dimensions"},
           {R"({"input":"a","encoding_format":4})", "encoding_format"},
           {R"({"input":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens"}}) {
    const auto bad = parse(body);
    ASSERT_FALSE(bad) << body;
    EXPECT_EQ(bad.error().param, param) << body;
  }
  std::string many = R"({"input":["a")";
  for (int i = 0; i < 2048; ++i) many += R"(,"a")";
  EXPECT_EQ(parse(many + "]}").error().param, "input");
}

class EmbeddingService : public testing::Test {
 protected:
  explicit EmbeddingService(ModelFacts facts = test_facts())
      : service_(ServiceParts{.generation = generation_,
                              .registry = registry_,
                              .prompts = prompts_,
                              .facts = std::move(facts)}) {
    service_.set_state(Service::State::kReady);
  }
  static HttpRequest request(int n_inputs) {
    json body = {{"input", json::array()}};
    for (int i = 0; i < n_inputs; ++i) body["input"].push_back(std::string(1 + i % 3, 'x'));
    return {"POST", "/v1/embeddings", {{"content-type", "application/json"}}, body.dump()};
  }

  ScriptedGeneration generation_;
  FakePromptBuilder prompts_;
  Snapshot<RegistrySnapshot> registry_{test_registry()};
  Service service_;
};

TEST_F(EmbeddingService, AListLongerThanTheQueueIsTakenBitByBit) {
  Script script;
  script.max_running = 3;  // more are refused
  generation_.set_script(script);
  const HttpResponse response = call_service(service_, request(40));
  EXPECT_EQ(response.status, 200) << response.body;
  const json data = json::parse(response.body)["data"];
  ASSERT_EQ(data.size(), 40U);
  for (std::size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data[i]["index"], i);
    EXPECT_GT(data[i]["embedding"][1 + (1 + i % 3) % 3].get<double>(), 0.7) << i;
  }
  EXPECT_EQ(generation_.submitted().size(), 40U);
}

TEST_F(EmbeddingService, AFullQueueIsAnErrorOnlyWhereNothingOfOursRuns) {
  Script script;
  script.max_running = 0;
  generation_.set_script(script);
  EXPECT_EQ(call_service(service_, request(2)).status, 429);
}

TEST_F(EmbeddingService, GivingUpCancelsWhatRuns) {
  Script script;
  script.silent = true;
  generation_.set_script(script);
  Answer answer = service_.answer(request(40), std::make_shared<NoWaker>());
  const auto exchange = std::get<std::shared_ptr<Exchange>>(answer);
  EXPECT_EQ(generation_.n_running(), 16U);  // as many as choices of one answer
  exchange->abandon();
  EXPECT_TRUE(generation_.wait_until_idle());
  EXPECT_EQ(generation_.submitted().size(), 16U);
}

TEST_F(EmbeddingService, TheServersStopIsAnError) {
  Script script;
  script.silent = true;
  generation_.set_script(script);
  Answer answer = service_.answer(request(2), std::make_shared<NoWaker>());
  const auto exchange = std::get<std::shared_ptr<Exchange>>(answer);
  exchange->shut_down();
  const Output output = exchange->poll(false);
  ASSERT_NE(output.whole, nullptr);
  EXPECT_EQ(output.whole->status, 503);
  EXPECT_TRUE(generation_.wait_until_idle());
}

ModelFacts facts_without_embeddings() {
  ModelFacts facts = test_facts();
  facts.n_embedding_values = 0;
  return facts;
}

class NoEmbeddings : public EmbeddingService {
 protected:
  NoEmbeddings() : EmbeddingService(facts_without_embeddings()) {}
};

TEST_F(NoEmbeddings, AreToldByName) {
  const HttpResponse response = call_service(service_, request(1));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body)["error"]["code"], "model_not_supported");
}

}  // namespace
}  // namespace graft::api
