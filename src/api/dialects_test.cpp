// What messages and responses requests become, and that no body breaks their readers.
#include "api/dialects.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/fields.h"
#include "api/testing/scripted_generation.h"

namespace graft::api {
namespace {

using nlohmann::json;

json messages_of(const GenerationCall& call) { return json::parse(call.chat->messages_json); }

Result<GenerationCall> messages(const std::string& more) {
  return parse_messages_call(
      R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}])" + more + "}", test_facts());
}

Result<ResponsesCall> responses(const std::string& more) {
  return parse_responses_call(R"({"input":"hi")" + more + "}", test_facts());
}

TEST(Messages, SystemAndSettings) {
  const auto call = messages(R"(,"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],
                   "stop_sequences":["x","y"],"temperature":0.5,"top_k":7,"top_p":0.5,"stream":true,
                   "model":"pirate","seed":3)");
  ASSERT_TRUE(call);
  EXPECT_EQ(messages_of(*call), json::parse(R"([{"role":"system","content":"a\nb"},
                                               {"role":"user","content":"hi"}])"));
  EXPECT_EQ(call->stop.strings, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(call->stop.max_tokens, 9);
  EXPECT_EQ(call->sampling.temperature, 0.5F);
  EXPECT_EQ(call->sampling.top_k, 7);
  EXPECT_EQ(call->sampling.seed, 3U);
  EXPECT_EQ(call->model, "pirate");
  EXPECT_TRUE(call->stream);
  EXPECT_TRUE(call->chat->add_generation_prompt);
}

TEST(Messages, TheLastMessageMayBeginTheAnswer) {
  const auto call = parse_messages_call(
      R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"},
          {"role":"assistant","content":"It is"}]})",
      test_facts());
  ASSERT_TRUE(call);
  EXPECT_TRUE(call->chat->continue_final_message);
}

TEST(Messages, ThoughtsAreNotRepeated) {
  const auto call = parse_messages_call(
      R"({"max_tokens":9,"messages":[{"role":"assistant","content":[
          {"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"yes"}]},
          {"role":"user","content":"why"}]})",
      test_facts());
  ASSERT_TRUE(call);
  EXPECT_EQ(messages_of(*call)[0]["content"], json::parse(R"([{"type":"text","text":"yes"}])"));
}

TEST(Messages, Refusals) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"max_tokens":0)", "max_tokens"},
      {R"(,"max_tokens":"9")", "max_tokens"},
      {R"(,"messages":[])", "messages"},
      {R"(,"messages":[1])", "messages[0]"},
      {R"(,"messages":[{"role":"tool","content":"x"}])", "messages[0].role"},
      {R"(,"messages":[{"role":"user"}])", "messages[0].content"},
      {R"(,"messages":[{"role":"user","content":[]}])", "messages[0].content"},
      {R"(,"messages":[{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type"},
      {R"(,"messages":[{"role":"user","content":[{"type":"text"}]}])",
       "messages[0].content[0].text"},
      {R"(,"messages":[{"role":"user","content":[{"type":"tool_use","id":"i","name":"n"}]}])",
       "messages[0].content[0].type"},
      {R"(,"system":[{"type":"image"}])", "system[0].type"},
      {R"(,"system":1)", "system"},
      {R"(,"temperature":-1)", "temperature"},
      {R"(,"stop_sequences":"x")", "stop_sequences"},
      {R"(,"stop_sequences":[1])", "stop_sequences"},
      {R"(,"tool_choice":{"type":"some"})", "tool_choice.type"},
      {R"(,"tools":[{"name":1}])", "tools[0].name"},
      {R"(,"tools":[{"type":"bash_20250124","name":"bash"}])", "tools[0].type"},
      {R"(,"output_config":{"format":{"type":"xml"}})", "output_config.format.type"},
      {R"(,"mcp_servers":[{}])", "mcp_servers"},
  };
  for (const auto& [more, param] : cases) {
    // The later of two equal keys counts.
    const auto call = messages(more);
    ASSERT_FALSE(call) << more;
    EXPECT_EQ(call.error().param, param) << more;
  }
}

TEST(Messages, CountingNeedsNoLimit) {
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}]})";
  EXPECT_TRUE(parse_count_tokens_call(body, test_facts()));
  EXPECT_FALSE(parse_messages_call(body, test_facts()));
}

TEST(Responses, ItemsBecomeMessages) {
  const auto made = parse_responses_call(
      R"({"instructions":"Be brief.","input":[
          {"role":"developer","content":"d"},
          {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},
                                                     {"type":"input_text","text":"b"}]},
          {"type":"reasoning","summary":[]}]})",
      test_facts());
  ASSERT_TRUE(made);
  EXPECT_EQ(messages_of(made->call), json::parse(R"([{"role":"system","content":"Be brief."},
                            {"role":"system","content":"d"},
                            {"role":"user","content":"a\nb"}])"));
}

TEST(Responses, SettingsAndWhatIsRepeated) {
  const auto made = responses(
      R"(,"max_output_tokens":7,"temperature":0.25,"top_p":0.5,"metadata":{"k":"v"},"stream":true,
          "include":["message.output_text.logprobs"],"top_logprobs":3,"parallel_tool_calls":false)");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->call.stop.max_tokens, 7);
  EXPECT_EQ(made->call.sampling.n_logprobs, 3);
  EXPECT_TRUE(made->call.stream);
  EXPECT_EQ(made->echo.max_output_tokens, "7");
  EXPECT_EQ(made->echo.metadata, R"({"k":"v"})");
  EXPECT_EQ(made->echo.temperature, 0.25F);
  EXPECT_FALSE(made->echo.parallel_tool_calls);
  EXPECT_FALSE(responses("")->call.sampling.n_logprobs);
}

TEST(Responses, Refusals) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"input":[])", "input"},
      {R"(,"input":[1])", "input[0]"},
      {R"(,"input":[{"role":"x","content":"a"}])", "input[0].role"},
      {R"(,"input":[{"role":"user"}])", "input[0].content"},
      {R"(,"input":[{"type":"item_reference","id":"x"}])", "input[0].type"},
      {R"(,"input":[{"type":"function_call","call_id":"c","name":"n"}])", "input[0].arguments"},
      {R"(,"input":[{"type":"function_call_output","call_id":"c"}])", "input[0].output"},
      {R"(,"input":[{"type":"reasoning"}])", "input"},
      {R"(,"max_output_tokens":0)", "max_output_tokens"},
      {R"(,"previous_response_id":"r")", "previous_response_id"},
      {R"(,"background":true)", "background"},
      {R"(,"conversation":"c")", "conversation"},
      {R"(,"prompt":{"id":"p"})", "prompt"},
      {R"(,"tools":[{"type":"mcp"}])", "tools[0].type"},
      {R"(,"tool_choice":{"type":"file_search"})", "tool_choice.type"},
      {R"(,"text":{"format":{"type":"xml"}})", "text.format.type"},
      {R"(,"include":[1])", "include[0]"},
      {R"(,"top_logprobs":21)", "top_logprobs"},
  };
  for (const auto& [more, param] : cases) {
    const auto made = responses(more);
    ASSERT_FALSE(made) << more;
    EXPECT_EQ(made.error().param, param) << more;
  }
}

TEST(Dialects, EveryFieldSurvivesEveryType) {
  for (const Field& field : dialect_fields()) {
    for (const char* value :
         {"true", "null", "-1", "0.5", "1e300", "38888888888888888888888", "\"x\"", "[]", "[null]",
          "[[]]", "{}", R"({"x":null})", R"([{"x":1}])", R"([{"type":"text"}])",
          R"({"type":"function"})", R"({"type":1})"}) {
      const std::string more = ",\"" + std::string(field.name) + "\":" + value;
      const auto call = messages(more);
      EXPECT_TRUE(call || !call.error().message.empty());
      const auto made = responses(more);
      EXPECT_TRUE(made || !made.error().message.empty());
    }
  }
}

}  // namespace
}  // namespace graft::api
