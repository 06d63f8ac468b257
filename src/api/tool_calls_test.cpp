// Tools from the request to the answer: what is refused, and how calls and reasoning are written.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/generation_call.h"
#include "api/service.h"
#include "api/testing/scripted_generation.h"
#include "api/testing/service_call.h"

namespace graft::api {
namespace {

using nlohmann::json;

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"get","parameters":{"type":"object",
       "properties":{"z":{"type":"string"},"a":{"type":"string"}}}}},
       {"type":"function","function":{"name":"put","description":"Puts."}}])";

Result<GenerationCall> chat(const std::string& more) {
  return parse_chat_call(R"({"messages":[{"role":"user","content":"hi"}],)" + more + "}",
                         test_facts());
}

Result<GenerationCall> history(const std::string& messages) {
  return parse_chat_call(R"({"messages":[{"role":"user","content":"hi"},)" + messages + "]}",
                         test_facts());
}

TEST(ParseTools, KeepsTheOrderOfProperties) {
  const auto call = chat(kTools);
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->chat->tools_json,
            R"([{"type":"function","function":{"name":"get","description":"","parameters":{"type":)"
            R"("object","properties":{"z":{"type":"string"},"a":{"type":"string"}}}}},{"type":)"
            R"("function","function":{"name":"put","description":"Puts.","parameters":{"type":)"
            R"("object","properties":{}}}}])");
  EXPECT_EQ(call->chat->tool_choice, ToolChoice::kAuto);
  EXPECT_TRUE(call->chat->parallel_tool_calls);
}

TEST(ParseTools, Choices) {
  const auto choice = [](const std::string& value) {
    return *chat(kTools + R"(,"parallel_tool_calls":false,"tool_choice":)" + value)->chat;
  };
  EXPECT_EQ(choice("\"auto\"").tool_choice, ToolChoice::kAuto);
  EXPECT_FALSE(choice("\"auto\"").parallel_tool_calls);
  EXPECT_EQ(choice("\"required\"").tool_choice, ToolChoice::kRequired);
  const ChatPrompt named = choice(R"({"type":"function","function":{"name":"put"}})");
  EXPECT_EQ(named.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(named.named_tool, "put");
  EXPECT_EQ(choice("\"none\"").tools_json, "");
  EXPECT_EQ(chat(R"("tools":[],"tool_choice":"auto")")->chat->tool_choice, ToolChoice::kNone);
}

struct Bad {
  std::string json;
  std::string param;
};

TEST(ParseTools, WhatIsMalformedIsNamed) {
  std::string many = R"("tools":[)";
  for (int i = 0; i < 129; ++i) {
    many += std::string(i == 0 ? "" : ",") + R"({"type":"function","function":{"name":"f)" +
            std::to_string(i) + "\"}}";
  }
  const Bad cases[] = {
      {R"("tools":{})", "tools"},
      {R"("tools":[1])", "tools[0]"},
      {R"("tools":[{}])", "tools[0]"},
      {R"("tools":[{"type":"retrieval"}])", "tools[0].type"},
      {R"("tools":[{"type":"function"}])", "tools[0].function"},
      {R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"f","description":1}}])",
       "tools[0].function.description"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])",
       "tools[0].function.parameters"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"nothing"}}}])",
       "tools[0].function.parameters"},
      {R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"array","uniqueItems":true}}}])",
       "tools[0].function.parameters"},
      {R"("tools":[{"type":"function","function":{"name":"f","strict":1}}])",
       "tools[0].function.strict"},
      {R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])",
       "tools[1].function.name"},
      {many + "]", "tools"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":{"type":"function","function":{"name":"get"}})", "tool_choice"},
      {kTools + R"(,"tool_choice":"sometimes")", "tool_choice"},
      {kTools + R"(,"tool_choice":7)", "tool_choice"},
      {kTools + R"(,"tool_choice":{"type":"function"})", "tool_choice"},
      {kTools + R"(,"tool_choice":{"type":"function","function":{"name":"nope"}})",
       "tool_choice.function.name"},
      {kTools + R"(,"parallel_tool_calls":"yes")", "parallel_tool_calls"},
      {kTools + R"(,"response_format":{"type":"json_object"})", "response_format"},
      {kTools + R"(,"grammar":"root ::= \"a\"")", "grammar"},
      {R"("reasoning_effort":"huge")", "reasoning_effort"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"}};
  for (const Bad& bad : cases) {
    const auto call = chat(bad.json);
    ASSERT_FALSE(call) << bad.json;
    EXPECT_EQ(call.error().param, bad.param) << bad.json.substr(0, 200);
  }
}

TEST(ParseTools, TheOlderFormIsRefusedWithTheWayOut) {
  for (const char* body : {R"("functions":[{"name":"f"}])", R"("function_call":"auto")",
                           R"("function_call":{"name":"f"})"}) {
    const auto call = chat(body);
    ASSERT_FALSE(call) << body;
    EXPECT_EQ(call.error().code, ErrorCode::kNotSupported);
    EXPECT_NE(call.error().message.find("send 'tools'"), std::string::npos);
  }
  EXPECT_TRUE(chat(R"("functions":[],"function_call":"none")"));
  EXPECT_EQ(history(R"({"role":"function","name":"f","content":"x"})").error().param,
            "messages[1]");
  EXPECT_EQ(history(R"({"role":"assistant","content":null,"function_call":{}})").error().param,
            "messages[1]");
}

TEST(ParseTools, KeywordsForTheTemplate) {
  EXPECT_EQ(chat(R"("chat_template_kwargs":{"enable_thinking":false})")->chat->template_kwargs_json,
            R"({"enable_thinking":false})");
  EXPECT_EQ(chat(R"("reasoning_effort":"low")")->chat->template_kwargs_json,
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(chat(R"("reasoning_effort":"none")")->chat->template_kwargs_json,
            R"({"enable_thinking":false})");
  EXPECT_EQ(chat(R"("user":"x")")->chat->template_kwargs_json, "");
}

TEST(ParseMessages, CallsAndTheirResults) {
  const auto call = history(
      R"({"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[
          {"id":"c1","type":"function","function":{"name":"get","arguments":"{\"z\":1}"}},
          {"id":"c2","function":{"name":"put","arguments":{"q":2}}}]},
         {"role":"tool","tool_call_id":"c1","content":"one"},
         {"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"two"}]})");
  ASSERT_TRUE(call) << call.error().message;
  const json messages = json::parse(call->chat->messages_json);
  EXPECT_EQ(messages[1]["content"], "");
  EXPECT_EQ(messages[1]["reasoning_content"], "hm");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"], "{\"z\":1}");
  EXPECT_EQ(messages[1]["tool_calls"][1]["function"]["arguments"], "{\"q\":2}");
  EXPECT_EQ(messages[2]["tool_call_id"], "c1");
  const Bad cases[] = {
      {R"({"role":"tool","content":"x"})", "messages[1].tool_call_id"},
      {R"({"role":"tool","tool_call_id":7,"content":"x"})", "messages[1].tool_call_id"},
      {R"({"role":"user","content":"x","tool_calls":[{}]})", "messages[1].role"},
      {R"({"role":"assistant","tool_calls":{}})", "messages[1].tool_calls"},
      {R"({"role":"assistant","tool_calls":[{}]})", "messages[1].tool_calls[0].function"},
      {R"({"role":"assistant","tool_calls":[{"function":{"name":"f"}}]})",
       "messages[1].tool_calls[0].function.arguments"},
      {R"({"role":"assistant","tool_calls":[{"type":"x","function":{}}]})",
       "messages[1].tool_calls[0].type"},
      {R"({"role":"assistant","content":null})", "messages[1].content"}};
  for (const Bad& bad : cases) {
    const auto refused = history(bad.json);
    ASSERT_FALSE(refused) << bad.json;
    EXPECT_EQ(refused.error().param, bad.param);
  }
}

// Text of reasoning in <r>...</r>, calls as !NAME ARGUMENTS; at the end of the text.
class ToySyntax : public AnswerSyntax {
 public:
  Result<ChatMessage> parse(std::string_view text, bool) const override {
    ChatMessage message;
    if (text.starts_with("<r>")) {
      const std::size_t end = text.find("</r>");
      message.reasoning = text.substr(3, end == std::string_view::npos ? end : end - 3);
      text = end == std::string_view::npos ? "" : text.substr(end + 4);
    }
    std::size_t call = text.find('!');
    message.content = text.substr(0, call);
    while (call != std::string_view::npos) {
      const std::size_t next = text.find('!', call + 1);
      const std::string_view one = text.substr(call + 1, next - call - 1);
      const std::size_t space = one.find(' ');
      if (space != std::string_view::npos) {
        message.tool_calls.push_back(
            {"", std::string(one.substr(0, space)), std::string(one.substr(space + 1))});
      }
      call = next;
    }
    return message;
  }
  bool nests() const override { return true; }
  bool has_tool(std::string_view name) const override { return name == "get" || name == "put"; }
  bool begins_longer_tool(std::string_view) const override { return false; }
};

class ToolAnswers : public testing::Test {
 protected:
  ToolAnswers()
      : registry_(test_registry()), service_({generation_, registry_, prompts_, test_facts()}) {
    service_.set_state(Service::State::kReady);
    auto format = std::make_shared<AnswerFormat>();
    format->syntax = std::make_shared<ToySyntax>();
    format->stop_strings = {"<end>"};
    prompts_.set_tool_format(format);
  }

  HttpResponse ask(std::vector<std::string> pieces, const std::string& more,
                   FinishReason reason = FinishReason::kStop) {
    Script script;
    script.pieces = std::move(pieces);
    script.reason = reason;
    generation_.set_script(script);
    return call_service(service_,
                        {"POST",
                         "/v1/chat/completions",
                         {},
                         R"({"messages":[{"role":"user","content":"hi"}],)" + kTools + more + "}"});
  }
  json ask_whole(std::vector<std::string> pieces, const std::string& more = "",
                 FinishReason reason = FinishReason::kStop) {
    return json::parse(ask(std::move(pieces), more, reason).body);
  }
  // The chunks of a stream; "[DONE]" is checked and left out.
  std::vector<json> ask_stream(std::vector<std::string> pieces, const std::string& more = "",
                               FinishReason reason = FinishReason::kStop) {
    const std::string body = ask(std::move(pieces), R"(,"stream":true)" + more, reason).body;
    std::vector<json> chunks;
    std::size_t at = 0;
    for (std::size_t end = body.find("\n\n"); end != std::string::npos;
         end = body.find("\n\n", at)) {
      const std::string line = body.substr(at + 6, end - at - 6);
      if (line != "[DONE]") chunks.push_back(json::parse(line));
      at = end + 2;
    }
    EXPECT_TRUE(body.ends_with("data: [DONE]\n\n"));
    return chunks;
  }

  ScriptedGeneration generation_;
  FakePromptBuilder prompts_;
  Snapshot<RegistrySnapshot> registry_;
  Service service_;
};

const std::vector<std::string> kPieces = {"<r>",      "think", "</r>Text", "!ge",
                                          "t {\"z\"", ":1}",   "!put {}"};

TEST_F(ToolAnswers, Whole) {
  const json body = ask_whole(kPieces);
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const json& message = choice["message"];
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["content"], "Text");
  EXPECT_EQ(message["reasoning_content"], "think");
  ASSERT_EQ(message["tool_calls"].size(), 2U);
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_EQ(message["tool_calls"][0]["function"],
            json({{"name", "get"}, {"arguments", "{\"z\":1}"}}));
  EXPECT_EQ(message["tool_calls"][1]["function"]["name"], "put");
  const std::string id = message["tool_calls"][0]["id"];
  EXPECT_TRUE(id.starts_with("call_"));
  EXPECT_NE(id, message["tool_calls"][1]["id"]);
  EXPECT_FALSE(choice.contains("error"));
  EXPECT_EQ(generation_.submitted()[0].stop.strings, std::vector<std::string>{"<end>"});
}

TEST_F(ToolAnswers, ContentIsNullBesideCallsAlone) {
  EXPECT_TRUE(ask_whole({"!put {}"})["choices"][0]["message"]["content"].is_null());
  const json plain = ask_whole({"Just text."})["choices"][0];
  EXPECT_EQ(plain["message"]["content"], "Just text.");
  EXPECT_FALSE(plain["message"].contains("tool_calls"));
  EXPECT_EQ(plain["finish_reason"], "stop");
}

TEST_F(ToolAnswers, Streamed) {
  const auto chunks = ask_stream(kPieces);
  std::vector<json> deltas;
  for (const json& chunk : chunks) deltas.push_back(chunk["choices"][0]["delta"]);
  ASSERT_EQ(deltas.size(), 7U);
  EXPECT_EQ(deltas[0]["role"], "assistant");
  EXPECT_EQ(deltas[1], json({{"reasoning_content", "think"}}));
  EXPECT_EQ(deltas[2], json({{"content", "Text"}}));
  const json& first = deltas[3]["tool_calls"][0];
  EXPECT_EQ(first["index"], 0);
  EXPECT_EQ(first["type"], "function");
  EXPECT_TRUE(first["id"].get<std::string>().starts_with("call_"));
  EXPECT_EQ(first["function"], json({{"name", "get"}, {"arguments", "{\"z\""}}));
  EXPECT_EQ(
      deltas[4],
      json({{"tool_calls", json::array({{{"index", 0}, {"function", {{"arguments", ":1}"}}}}})}}));
  EXPECT_EQ(deltas[5]["tool_calls"][0]["index"], 1);
  EXPECT_EQ(deltas[5]["tool_calls"][0]["function"]["arguments"], "{}");
  EXPECT_EQ(deltas[6], json::object());
  EXPECT_EQ(chunks[6]["choices"][0]["finish_reason"], "tool_calls");
}

TEST_F(ToolAnswers, CutOffByLength) {
  const auto chunks = ask_stream({"!get {\"z\""}, "", FinishReason::kLength);
  EXPECT_EQ(chunks.back()["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(ask_whole({"!get {\"z\""}, "", FinishReason::kLength)["choices"][0]["finish_reason"],
            "length");
}

TEST_F(ToolAnswers, TooDeepEndsThatChoiceAlone) {
  std::vector<std::string> deep = {"!get {\"z\":"};
  for (int i = 0; i < 400; ++i) deep.push_back("[");
  const auto chunks = ask_stream(deep, R"(,"stream_options":{"include_usage":true})");
  const json& last = chunks[chunks.size() - 2]["choices"][0];
  EXPECT_EQ(last["finish_reason"], "stop");
  EXPECT_NE(last["error"]["message"].get<std::string>().find("256"), std::string::npos);
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 257);
  EXPECT_TRUE(generation_.wait_until_idle());

  const json two = ask_whole(deep, R"(,"n":2)");
  for (const json& choice : two["choices"]) {
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["error"]["code"], "output_not_parsed");
  }
}

TEST_F(ToolAnswers, LogprobsAreThoseOfAllTokens) {
  const json whole = ask_whole(kPieces, R"(,"logprobs":true)");
  EXPECT_EQ(whole["choices"][0]["logprobs"]["content"].size(), kPieces.size());
  std::size_t n_logprobs = 0;
  for (const json& chunk : ask_stream(kPieces, R"(,"logprobs":true)")) {
    const json& logprobs = chunk["choices"][0]["logprobs"];
    if (!logprobs.is_null()) n_logprobs += logprobs["content"].size();
  }
  EXPECT_EQ(n_logprobs, kPieces.size());
}

// The same calls as Anthropic's clients and those of OpenAI's responses read them.
class ToolDialects : public ToolAnswers {
 protected:
  HttpResponse post(const std::string& path, const std::string& body) {
    Script script;
    script.pieces = kPieces;
    generation_.set_script(script);
    return call_service(service_, {"POST", path, {}, body});
  }
  // The `data:` objects of a stream.
  std::vector<json> events_of(const std::string& body) {
    std::vector<json> events;
    std::size_t at = 0;
    for (std::size_t end = body.find("\n\n"); end != std::string::npos;
         end = body.find("\n\n", at)) {
      const std::string block = body.substr(at, end - at);
      events.push_back(json::parse(block.substr(block.find("data: ") + 6)));
      at = end + 2;
    }
    return events;
  }

  static std::string message_body(const std::string& more) {
    return R"({"max_tokens":50,"messages":[{"role":"user","content":"hi"}],"tools":[)"
           R"({"name":"get","input_schema":{"type":"object"}},)"
           R"({"name":"put","input_schema":{"type":"object"}}])" +
           more + "}";
  }
  static std::string response_body(const std::string& more) {
    return R"({"input":"hi","tools":[)"
           R"({"type":"function","name":"get","parameters":{"type":"object"}},)"
           R"({"type":"function","name":"put","parameters":{"type":"object"}}])" +
           more + "}";
  }
};

TEST_F(ToolDialects, Messages) {
  const json whole = json::parse(post("/v1/messages", message_body("")).body);
  EXPECT_EQ(whole["stop_reason"], "tool_use") << whole;
  ASSERT_EQ(whole["content"].size(), 4U);
  EXPECT_EQ(whole["content"][0]["thinking"], "think");
  EXPECT_EQ(whole["content"][1]["text"], "Text");
  EXPECT_EQ(whole["content"][2]["name"], "get");
  EXPECT_EQ(whole["content"][2]["input"], json({{"z", 1}}));
  EXPECT_EQ(whole["content"][3]["name"], "put");

  std::string kinds;
  std::map<int, std::string> inputs;
  for (const json& event :
       events_of(post("/v1/messages", message_body(R"(,"stream":true)")).body)) {
    if (event["type"] == "content_block_start") {
      kinds += event["content_block"]["type"].get<std::string>() + " ";
      EXPECT_EQ(event["index"], std::count(kinds.begin(), kinds.end(), ' ') - 1);
    } else if (event["type"] == "content_block_delta" &&
               event["delta"]["type"] == "input_json_delta") {
      inputs[event["index"]] += event["delta"]["partial_json"].get<std::string>();
    } else if (event["type"] == "message_delta") {
      EXPECT_EQ(event["delta"]["stop_reason"], "tool_use");
    }
  }
  EXPECT_EQ(kinds, "thinking text tool_use tool_use ");
  EXPECT_EQ(inputs[2], "{\"z\":1}");
  EXPECT_EQ(inputs[3], "{}");
}

TEST_F(ToolDialects, Responses) {
  const json whole = json::parse(post("/v1/responses", response_body("")).body);
  ASSERT_EQ(whole["output"].size(), 4U) << whole;
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "think");
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "Text");
  EXPECT_EQ(whole["output"][2]["type"], "function_call");
  EXPECT_EQ(whole["output"][2]["name"], "get");
  EXPECT_EQ(whole["output"][2]["arguments"], "{\"z\":1}");
  EXPECT_NE(whole["output"][2]["id"], whole["output"][3]["id"]);

  const auto events = events_of(post("/v1/responses", response_body(R"(,"stream":true)")).body);
  std::string arguments;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    if (events[i]["type"] == "response.function_call_arguments.delta") {
      arguments += events[i]["delta"].get<std::string>() + "|";
    }
  }
  EXPECT_EQ(arguments, "{\"z\"|:1}|{}|");
  EXPECT_EQ(events.back()["type"], "response.completed");
  const json& output = events.back()["response"]["output"];
  ASSERT_EQ(output.size(), 4U);
  EXPECT_EQ(output[3]["name"], "put");
  EXPECT_EQ(output[3]["status"], "completed");
}

}  // namespace
}  // namespace graft::api
