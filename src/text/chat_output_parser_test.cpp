#include "text/chat_output_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "text/generic_tools.h"

namespace graft {
namespace {

std::shared_ptr<const AnswerSyntax> syntax() { return make_generic_syntax({"get", "get_weather"}); }

ChatMessage parse(const std::string& text, std::size_t size) {
  ChatOutputParser parser(syntax());
  ChatMessage message;
  for (std::size_t at = 0; at < text.size(); at += size) {
    append(message, parser.push(text.substr(at, size)));
  }
  append(message, parser.finish());
  EXPECT_FALSE(parser.failed());
  return message;
}

ToolCall call(const std::string& name, const std::string& arguments) {
  return {"", name, arguments};
}

struct Written {
  std::string text;
  ChatMessage message;
};

const std::vector<Written>& answers() {
  static const std::vector<Written> list = {
      {"", {}},
      {"plain", {"", "plain", {}}},
      {"ends like a mark <tool_", {"", "ends like a mark <tool_", {}}},
      {"<tool_call>\n{\"name\": \"get\", \"arguments\": {\"key\": \"a\"}}\n</tool_call>",
       {"", "", {call("get", "{\"key\": \"a\"}")}}},
      {"First.\n<tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call>\n"
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"a\": [1, {\"b\": "
       "\"}]\\\"\"}]}}\n"
       "</tool_call>\n",
       {"",
        "First.\n",
        {call("get", "{}"), call("get_weather", "{\"a\": [1, {\"b\": \"}]\\\"\"}]}")}}},
      // Not calls: an unknown tool, no JSON, a mark without anything.
      {"<tool_call>{\"name\":\"rm\",\"arguments\":{}}</tool_call>",
       {"", "<tool_call>{\"name\":\"rm\",\"arguments\":{}}</tool_call>", {}}},
      {"The mark <tool_call> is", {"", "The mark <tool_call> is", {}}},
      {"<tool_call>", {"", "<tool_call>", {}}},
      // Cut off.
      {"<tool_call>{\"name\":\"get\",\"arguments\":{\"key\":\"a b",
       {"", "", {call("get", "{\"key\":\"a b")}}},
      {"<tool_call>{\"name\":\"ge", {"", "<tool_call>{\"name\":\"ge", {}}},
      {"<tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call> And more.",
       {"", " And more.", {call("get", "{}")}}}};
  return list;
}

TEST(ChatOutputParser, GenericCallsInAnyPieces) {
  for (const Written& answer : answers()) {
    for (const std::size_t size : {1U, 2U, 5U, 1000U}) {
      const ChatMessage parsed = parse(answer.text, size);
      EXPECT_EQ(parsed.content, answer.message.content) << answer.text;
      EXPECT_TRUE(parsed == answer.message) << answer.text << " in pieces of " << size;
    }
  }
}

TEST(ChatOutputParser, DeltasComeAsEarlyAsTheyAreCertain) {
  ChatOutputParser parser(syntax());
  EXPECT_EQ(parser.push("Hi <to").content, "Hi ");
  EXPECT_EQ(parser.push("tal>").content, "<total>");
  EXPECT_TRUE(parser.push("<tool_call>{\"name\":\"get\",\"arguments\":").empty());
  const ChatDelta first = parser.push("{\"k");
  ASSERT_EQ(first.tool_calls.size(), 1U);
  EXPECT_TRUE(first.tool_calls[0].is_first);
  EXPECT_EQ(first.tool_calls[0].call.name, "get");
  EXPECT_EQ(first.tool_calls[0].call.arguments, "{\"k");
  const ChatDelta second = parser.push("\":1");
  ASSERT_EQ(second.tool_calls.size(), 1U);
  EXPECT_FALSE(second.tool_calls[0].is_first);
  EXPECT_EQ(second.tool_calls[0].call.name, "");
  EXPECT_EQ(second.tool_calls[0].call.arguments, "\":1");
  EXPECT_TRUE(parser.has_tool_calls());
}

TEST(ChatOutputParser, WithoutSyntaxAllIsContent) {
  ChatOutputParser parser(nullptr);
  EXPECT_EQ(parser.push("<tool_call>[[").content, "<tool_call>[[");
  EXPECT_TRUE(parser.finish().empty());
}

// Reasoning up to "</think>", then content; counts the bytes it parses, and refuses depth.
class CountingSyntax : public AnswerSyntax {
 public:
  Result<ChatMessage> parse(std::string_view text, bool) const override {
    n_bytes += text.size();
    const std::size_t end = text.find("</think>");
    ChatMessage message;
    message.reasoning = text.substr(0, end);
    if (end != std::string_view::npos) message.content = text.substr(end + 8);
    if (message.content.find("BAD") != std::string::npos) return internal_error("bad");
    return message;
  }
  bool nests() const override { return true; }
  bool has_tool(std::string_view) const override { return false; }
  bool begins_longer_tool(std::string_view) const override { return false; }

  mutable std::size_t n_bytes = 0;
};

TEST(ChatOutputParser, TimeIsLinearAndNothingIsLost) {
  const auto counting = std::make_shared<CountingSyntax>();
  ChatOutputParser parser(counting);
  ChatMessage message;
  ChatMessage expected;
  std::size_t n_bytes = 0;
  const auto feed = [&](const std::string& text) {
    n_bytes += text.size();
    append(message, parser.push(text));
  };
  for (int i = 0; i < 10'000; ++i) {
    const std::string piece = "r\xC3\xA9 " + std::to_string(i) + " ";
    expected.reasoning += piece;
    feed(piece);
  }
  feed("</think>");
  for (int i = 0; i < 10'000; ++i) {
    const std::string piece = "c\xC3\xA9 " + std::to_string(i) + " ";
    expected.content += piece;
    feed(piece);
  }
  append(message, parser.finish());
  EXPECT_TRUE(message == expected);
  // A piece of some 8 bytes costs at most the 2,600 that are kept; from the start it would be
  // 70,000 on average.
  EXPECT_LT(counting->n_bytes, 20'000U * 2'700U);
}

TEST(ChatOutputParser, TooDeepAnAnswerIsNeverParsed) {
  class DepthSyntax : public CountingSyntax {
   public:
    Result<ChatMessage> parse(std::string_view text, bool is_whole) const override {
      EXPECT_LE(std::count(text.begin(), text.end(), '['), kMaxOutputBrackets);
      return CountingSyntax::parse(text, is_whole);
    }
  };
  ChatOutputParser parser(std::make_shared<DepthSyntax>());
  for (int i = 0; i < kMaxOutputBrackets; ++i) parser.push("[");
  EXPECT_FALSE(parser.failed());
  EXPECT_TRUE(parser.push("[").empty());
  EXPECT_TRUE(parser.failed());
  EXPECT_NE(parser.error().find("256"), std::string::npos);
  EXPECT_TRUE(parser.push("x").empty());
  EXPECT_TRUE(parser.finish().empty());
}

TEST(ChatOutputParser, WhatCannotBeParsedIsContentUnlessACallIsBroken) {
  ChatOutputParser parser(std::make_shared<CountingSyntax>());
  EXPECT_EQ(parser.push("a</think>b").content, "b");
  EXPECT_TRUE(parser.push(" BAD").empty());
  EXPECT_EQ(parser.finish().content, " BAD");
  EXPECT_FALSE(parser.failed());

  class CallSyntax : public CountingSyntax {
   public:
    Result<ChatMessage> parse(std::string_view text, bool is_whole) const override {
      auto message = CountingSyntax::parse(text, is_whole);
      if (message) message->tool_calls.push_back({"", "get", "{}"});
      return message;
    }
    bool has_tool(std::string_view name) const override { return name == "get"; }
  };
  ChatOutputParser broken(std::make_shared<CallSyntax>());
  EXPECT_EQ(broken.push("a</think>b").tool_calls.size(), 1U);
  broken.push(" BAD");
  EXPECT_TRUE(broken.finish().empty());
  EXPECT_EQ(broken.error(), "bad");
}

}  // namespace
}  // namespace graft
