// Constrained answers of the real binary on the counting model, over HTTP: every dialect, plain and
// streamed, and what is refused before anything is computed.
#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "cli/program.h"
#include "http/testing/raw_client.h"
#include "support/test_files.h"

namespace graft {
namespace {

using Json = nlohmann::json;

class StructuredOutput : public testing::Test {
 protected:
  StructuredOutput()
      : program_({"serve", source_file("tests/synthetic/counting.gguf"), "--threads", "1", "--port",
                  "0"}),
        port_(program_.wait_for_port()) {
    EXPECT_NE(port_, 0) << program_.err();
  }

  RawResponse ask(Json fields) const {
    fields["messages"] = {{{"role", "user"}, {"content", "abc"}}};
    fields.emplace("max_tokens", 700);
    RawClient client(port_);
    EXPECT_TRUE(client.send(post_request("/v1/chat/completions", fields.dump())));
    return client.read_response();
  }

  // The text of a plain and of a streamed answer, which must be the same.
  std::string answer(Json fields) const {
    fields.emplace("seed", 1);
    const RawResponse plain = ask(fields);
    const Json body = Json::parse(plain.body, nullptr, false);
    EXPECT_EQ(plain.status, 200) << plain.body;
    if (plain.status != 200) return "";
    EXPECT_EQ(body["choices"][0]["finish_reason"], "stop") << plain.body;
    std::string text = body["choices"][0]["message"]["content"];
    fields["stream"] = true;
    EXPECT_EQ(streamed_text(ask(fields).body), text);
    return text;
  }

  static std::string streamed_text(const std::string& body) {
    std::string text;
    for (std::size_t at = body.find("data: {"); at != std::string::npos;
         at = body.find("data: {", at + 1)) {
      const Json event = Json::parse(body.substr(at + 6, body.find('\n', at) - at - 6));
      text += event["choices"][0]["delta"].value("content", "");
    }
    return text;
  }

  // A 400 that names the field, in no time, whether or not a stream was asked for.
  void expect_refused(Json fields, const std::string& param, const std::string& reason) const {
    for (const bool stream : {false, true}) {
      fields["stream"] = stream;
      const auto begin = std::chrono::steady_clock::now();
      const RawResponse response = ask(fields);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << param;
      EXPECT_EQ(response.status, 400) << response.body.substr(0, 300);
      const Json body = Json::parse(response.body, nullptr, false);
      ASSERT_FALSE(body.is_discarded()) << response.body;
      EXPECT_EQ(body["error"]["param"], param);
      const std::string message = body["error"]["message"];
      EXPECT_NE(message.find(reason), std::string::npos) << message;
    }
  }

  Program program_;
  std::uint16_t port_;
};

TEST_F(StructuredOutput, EveryDialectShapesTheAnswer) {
  const Json schema = Json::parse(R"({"type": "object", "required": ["kind", "n"],
      "additionalProperties": false, "properties": {"kind": {"enum": ["a", "b"]},
      "n": {"type": "integer", "minimum": 10, "maximum": 20}}})");
  const std::vector<Json> by_schema = {
      {{"response_format",
        {{"type", "json_schema"},
         {"json_schema", {{"name", "thing"}, {"strict", true}, {"schema", schema}}}}}},
      {{"json_schema", schema}},
      {{"structured_outputs", {{"json", schema}}}},
      {{"guided_json", schema.dump()}}};
  int seed = 0;
  for (Json fields : by_schema) {
    fields["temperature"] = seed % 2;
    fields["seed"] = ++seed;
    const Json value = Json::parse(answer(fields), nullptr, false);
    ASSERT_TRUE(value.is_object()) << fields;
    EXPECT_TRUE(value["kind"] == "a" || value["kind"] == "b");
    EXPECT_TRUE(value["n"] >= 10 && value["n"] <= 20);
    EXPECT_EQ(value.size(), 2U);
  }
  const std::regex expected("[0-9]{2}(x|yz)");
  for (const char* const name : {"guided_regex", "guided_grammar", "grammar"}) {
    const bool is_regex = std::string(name) == "guided_regex";
    const std::string text =
        answer({{name, is_regex ? "^[0-9]{2}(x|yz)$" : "root ::= [0-9]{2} (\"x\" | \"yz\")"},
                {"seed", 1}});
    EXPECT_TRUE(std::regex_match(text, expected)) << name << ": " << text;
  }
  for (const Json& fields :
       std::vector<Json>{{{"guided_choice", {"red", "green"}}},
                         {{"structured_outputs", {{"choice", {"red", "green"}}}}}}) {
    const std::string text = answer(fields);
    EXPECT_TRUE(text == "red" || text == "green") << text;
  }
}

// The order that the client wrote, not that of the alphabet.
TEST_F(StructuredOutput, PropertiesComeInTheOrderOfTheSchema) {
  RawClient client(port_);
  ASSERT_TRUE(client.send(post_request(
      "/v1/completions",
      R"({"prompt": "abc", "max_tokens": 60, "json_schema": {"type": "object", "properties":
         {"z": {"const": 1}, "a": {"const": 2}}, "required": ["z", "a"]}})")));
  const Json body = Json::parse(client.read_response().body);
  const std::string text = body["choices"][0]["text"];
  EXPECT_LT(text.find("\"z\""), text.find("\"a\"")) << text;
}

TEST_F(StructuredOutput, WhatALenientSchemaLeavesOutIsInAHeader) {
  const Json schema = {
      {"type", "array"}, {"items", {{"type", "boolean"}}}, {"maxItems", 3}, {"uniqueItems", true}};
  Json fields = {
      {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}};
  const RawResponse response = ask(fields);
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_NE(response.head.find("x-graft-warning: not enforced: #: the keyword 'uniqueitems'"),
            std::string::npos)
      << response.head;
  fields["response_format"]["json_schema"]["strict"] = true;
  expect_refused(fields, "response_format.json_schema.schema", "'uniqueItems'");
}

TEST_F(StructuredOutput, BadConstraintsAreRefusedWithTheFieldAndTheReason) {
  std::string doubling = "root ::= r0\n";
  for (int i = 0; i < 30; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    doubling += "r" + std::to_string(i) + " ::= " + next + " \"x\" | " + next + " \"y\"\n";
  }
  expect_refused({{"grammar", doubling + "r30 ::= \"a\""}}, "grammar", "too ambiguous");
  expect_refused({{"grammar", "root ::= " + std::string(50000, '(')}}, "grammar", "nested deeper");
  expect_refused({{"grammar", "root ::= root \"a\" | \"b\""}}, "grammar", "left-recursive");
  expect_refused({{"guided_regex", "(?!x)a"}}, "guided_regex", "look-around");
  expect_refused({{"structured_outputs", {{"regex", "a{5000}"}}}}, "structured_outputs.regex",
                 "2000");
  expect_refused({{"structured_outputs", {{"choice", Json::array()}}}}, "structured_outputs.choice",
                 "no choices");
  expect_refused(
      {{"json_schema", {{"$ref", "#/$defs/a"}, {"$defs", {{"a", {{"$ref", "#/$defs/a"}}}}}}}},
      "json_schema", "always needs itself");
  expect_refused({{"grammar", "root ::= \"a\""}, {"guided_regex", "a"}}, "grammar", "cannot both");
  // The server is as it was.
  EXPECT_EQ(answer({{"guided_choice", {"red"}}}), "red");
}

}  // namespace
}  // namespace graft
