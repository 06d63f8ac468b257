#include "api/parse_constraint.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/json_slice.h"

namespace graft::api {
namespace {

using Kind = ConstraintSource::Kind;

Result<GenerationCall> chat(const std::string& more) {
  ModelFacts facts;
  facts.n_context_tokens = 1000;
  facts.n_vocab = 100;
  return parse_chat_call(R"({"messages":[{"role":"user","content":"hi"}],)" + more + "}", facts);
}

ConstraintSource constraint(const std::string& more) {
  auto call = chat(more);
  EXPECT_TRUE(call) << more << ": " << (call ? "" : call.error().message);
  EXPECT_TRUE(call && call->constraint) << more;
  return call && call->constraint ? *call->constraint : ConstraintSource{};
}

TEST(ParseConstraint, NoConstraint) {
  for (const char* more :
       {R"("response_format":null)", R"("response_format":{"type":"text"})", R"("grammar":"")",
        R"("json_schema":null,"guided_regex":"","structured_outputs":{})",
        R"("structured_outputs":{"json_object":false,"regex":null})"}) {
    auto call = chat(more);
    ASSERT_TRUE(call) << more << ": " << call.error().message;
    EXPECT_FALSE(call->constraint) << more;
  }
}

TEST(ParseConstraint, EveryDialect) {
  const ConstraintSource object = {.kind = Kind::kJsonObject};
  const ConstraintSource schema = {.kind = Kind::kJsonSchema, .text = R"({"b": 1, "a": [ ]})"};
  const std::string text = schema.text;
  const ConstraintSource regex = {.kind = Kind::kRegex, .text = "a+"};
  const ConstraintSource grammar = {.kind = Kind::kGrammar, .text = "root ::= \"x\""};
  const ConstraintSource choice = {.kind = Kind::kChoice, .choices = {"yes", "no"}};
  ConstraintSource lenient = schema;
  lenient.lenient = true;
  const std::vector<std::pair<std::string, ConstraintSource>> cases = {
      {R"("response_format":{"type":"json_object"})", object},
      {R"("response_format":{"type":"json_object","schema":)" + text + "}", schema},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":)" +
           text + "}}",
       schema},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + text + "}}",
       lenient},
      {R"("json_schema":)" + text, schema},
      {R"("grammar":"root ::= \"x\"")", grammar},
      {R"("structured_outputs":{"json":)" + text + "}", schema},
      {R"("structured_outputs":{"json":"{\"b\": 1, \"a\": [ ]}"})", schema},
      {R"("structured_outputs":{"json_object":true})", object},
      {R"("structured_outputs":{"regex":"a+"})", regex},
      {R"("structured_outputs":{"choice":["yes","no"]})", choice},
      {R"("structured_outputs":{"grammar":"root ::= \"x\""})", grammar},
      {R"("guided_json":)" + text, schema},
      {R"("guided_regex":"a+")", regex},
      {R"("guided_choice":["yes","no"])", choice},
      {R"("guided_grammar":"root ::= \"x\"")", grammar},
  };
  for (const auto& [more, expected] : cases) EXPECT_EQ(constraint(more), expected) << more;
}

TEST(ParseConstraint, WrongFieldsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("response_format":{"type":"yaml"})", "response_format.type"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{}})",
       "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":1}})",
       "response_format.json_schema.strict"},
      {R"("response_format":{"type":"json_object","schema":3})", "response_format.schema"},
      {R"("json_schema":"{}")", "json_schema"},
      {R"("grammar":3)", "grammar"},
      {R"("guided_json":3)", "guided_json"},
      {R"("guided_choice":[3])", "guided_choice"},
      {R"("structured_outputs":{"regex":3})", "structured_outputs.regex"},
      {R"("structured_outputs":{"choice":"a"})", "structured_outputs.choice"},
      {R"("structured_outputs":{"json_object":1})", "structured_outputs.json_object"},
      {R"("structured_outputs":{"structural_tag":"x"})", "structured_outputs.structural_tag"},
      {R"("structured_outputs":{"regex":"a","choice":["b"]})", "structured_outputs.choice"},
      {R"("response_format":{"type":"json_object"},"grammar":"root ::= \"a\"")", "grammar"},
      {R"("guided_regex":"a","json_schema":{})", "json_schema"},
  };
  for (const auto& [more, param] : cases) {
    auto call = chat(more);
    ASSERT_FALSE(call) << more;
    EXPECT_EQ(call.error().param, param) << call.error().message;
    EXPECT_NE(call.error().message.find("'"), std::string::npos);
  }
}

TEST(JsonSlice, FindsTheTextOfAMember) {
  EXPECT_EQ(slice_json(R"({"a": {"b" : [1, {"c": "}"}] , "d":2}})", {"a", "b"}),
            R"([1, {"c": "}"}])");
  EXPECT_EQ(slice_json(R"( { "x":"\"}","a":-1.5e3 } )", {"a"}), "-1.5e3 ");
  EXPECT_EQ(slice_json(R"({"a":1,"a":{"b":true}})", {"a", "b"}), "true");
  EXPECT_EQ(slice_json(R"({"a":null})", {"b"}), "");
  EXPECT_EQ(slice_json(R"([1])", {"a"}), "");
  EXPECT_EQ(slice_json(R"({"a":{}})", {"a"}), "{}");
}

}  // namespace
}  // namespace graft::api
