// The shapes of answers: streams, whole objects, errors, log-probabilities, identifiers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/answer_shape.h"
#include "api/errors.h"
#include "api/event_inbox.h"
#include "api/event_stream.h"
#include "api/json_text.h"
#include "api/testing/scripted_generation.h"
#include "api/whole_answer.h"

namespace graft::api {
namespace {

using nlohmann::json;

AnswerShape shape(bool chat, std::int32_t n_choices = 1) {
  AnswerShape made;
  made.chat = chat;
  made.id = "id-1";
  made.created_unix_s = 17;
  made.model = "m";
  made.fingerprint = "f";
  made.graft_json = R"({"modules":[]})";
  made.n_choices = n_choices;
  made.n_prompt_tokens = 5;
  return made;
}

TokenOutput token(const std::string& text) {
  TokenOutput output;
  output.text = text;
  return output;
}

TokenOutput token_with_logprobs(const std::string& text, const std::string& bytes) {
  TokenOutput output = token(text);
  output.logprob = TokenLogprob{1, bytes, -0.25F};
  output.top_logprobs = {{1, bytes, -0.25F}, {2, "\xE2", -1.0F}, {3, "\xE2\x82", -INFINITY}};
  return output;
}

Finished finished(FinishReason reason, std::int32_t n_tokens, const std::string& text = "") {
  Finished event;
  event.reason = reason;
  event.text = text;
  event.n_prompt_tokens = 5;
  event.n_generated_tokens = n_tokens;
  return event;
}

// The JSON of each `data:` line; "[DONE]" becomes a string.
std::vector<json> parse_events(const std::string& stream) {
  std::vector<json> events;
  std::size_t at = 0;
  while (at < stream.size()) {
    const std::size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string line = stream.substr(at, end - at);
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    events.push_back(line == "data: [DONE]" ? json("[DONE]") : json::parse(line.substr(6)));
    at = end + 2;
  }
  return events;
}

TEST(EventStream, ChatFollowsTheRules) {
  AnswerShape with_usage = shape(true);
  with_usage.include_usage = true;
  EventStream stream(with_usage);
  std::string out;
  stream.append(out, 0, Started{5, 4});
  stream.append(out, 0, token("a\"b"));
  stream.append(out, 0, token(""));
  Finished last = finished(FinishReason::kLength, 2, "tail");
  last.n_cached_tokens = 3;  // less could be restored than was promised
  stream.append(out, 0, last);
  EXPECT_TRUE(stream.complete());
  const auto events = parse_events(out);
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[0]["graft"]["modules"], json::array());
  EXPECT_EQ(events[1]["choices"][0]["delta"], json({{"content", "a\"b"}}));
  EXPECT_EQ(events[2]["choices"][0]["delta"]["content"], "tail");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(events[static_cast<std::size_t>(i)]["choices"][0]["finish_reason"].is_null());
    EXPECT_TRUE(events[static_cast<std::size_t>(i)].contains("usage"));
    EXPECT_TRUE(events[static_cast<std::size_t>(i)]["usage"].is_null());
  }
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[3]["choices"][0]["delta"], json::object());
  EXPECT_EQ(events[4]["choices"], json::array());
  EXPECT_EQ(events[4]["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(events[4]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(events[4]["usage"]["total_tokens"], 7);
  EXPECT_EQ(events[4]["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(events[5], "[DONE]");
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(events[i]["id"], "id-1");
    EXPECT_EQ(events[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(events[i]["created"], 17);
    EXPECT_EQ(events[i]["model"], "m");
    EXPECT_EQ(events[i]["system_fingerprint"], "f");
  }
}

TEST(EventStream, SeveralChoicesEndOnce) {
  EventStream stream(shape(true, 2));
  std::string out;
  stream.append(out, 0, Started{5});
  stream.append(out, 1, Started{5});
  stream.append(out, 1, token("b"));
  stream.append(out, 1, finished(FinishReason::kStop, 1));
  EXPECT_FALSE(stream.complete());
  EXPECT_EQ(out.find("[DONE]"), std::string::npos);
  stream.append(out, 0, finished(FinishReason::kStop, 0));
  const auto events = parse_events(out);
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[2]["choices"][0]["index"], 1);
  EXPECT_FALSE(events[2].contains("usage"));
  EXPECT_EQ(events[5], "[DONE]");
}

TEST(EventStream, CompletionsWithLogprobsAndRunningUsage) {
  AnswerShape with = shape(false);
  with.logprobs = true;
  with.include_usage = true;
  with.continuous_usage = true;
  EventStream stream(with);
  std::string out;
  stream.append(out, 0, Started{5});
  EXPECT_EQ(out, "");
  stream.append(out, 0, token_with_logprobs("\xC3\xA9", "\xC3\xA9"));
  stream.append(out, 0, token_with_logprobs("x", "x"));
  stream.append(out, 0, finished(FinishReason::kStop, 2));
  const auto events = parse_events(out);
  EXPECT_EQ(events[0]["object"], "text_completion");
  EXPECT_EQ(events[0]["choices"][0]["text"], "\xC3\xA9");
  EXPECT_EQ(events[0]["usage"]["completion_tokens"], 1);
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"], json({1}));
  const json top = events[0]["choices"][0]["logprobs"]["top_logprobs"][0];
  EXPECT_EQ(top.size(), 3U);
  EXPECT_EQ(top["bytes:\\xe2"], -1.0);
  EXPECT_EQ(top["bytes:\\xe2\\x82"], -9999.0);
}

TEST(EventStream, ErrorEndsTheStream) {
  std::string out;
  EventStream(shape(true)).append_error(out, to_api_error(internal_error("broke")));
  const auto events = parse_events(out);
  EXPECT_EQ(events[0]["error"]["message"], "broke");
  EXPECT_EQ(events[0]["error"]["param"], nullptr);
  EXPECT_EQ(events[1], "[DONE]");
}

TEST(WholeAnswer, Chat) {
  AnswerShape with = shape(true, 2);
  with.logprobs = true;
  std::string out;
  WholeAnswer whole(with);
  whole.append(out, 1, token_with_logprobs("x", "x"));
  whole.append(out, 0, token_with_logprobs("", "\xE2"));
  whole.append(out, 0, token_with_logprobs("\xE2\x82\xAC", "\x82\xAC"));
  whole.append(out, 0, finished(FinishReason::kLength, 2, "!"));
  EXPECT_FALSE(whole.complete());
  EXPECT_EQ(out, "");
  whole.append(out, 1, finished(FinishReason::kStop, 1));
  ASSERT_TRUE(whole.complete());
  const json body = json::parse(out);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "\xE2\x82\xAC!");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  const json content = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0]["token"], "\xEF\xBF\xBD");
  EXPECT_EQ(content[0]["bytes"], json({0xE2}));
  EXPECT_EQ(content[0]["logprob"], -0.25);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 3U);
  EXPECT_EQ(body["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
}

TEST(WholeAnswer, Completion) {
  std::string out;
  WholeAnswer whole(shape(false));
  whole.append(out, 0, token("x\n"));
  whole.append(out, 0, finished(FinishReason::kStop, 1));
  const json body = json::parse(out);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "x\n");
  EXPECT_EQ(body["choices"][0]["logprobs"], nullptr);
}

TEST(AnswerShape, GraftObjectAndHeader) {
  AttachmentSet set;
  set.attachments = {{test_registry()->modules[0], 0.5F}, {test_registry()->modules[1], -1.0F}};
  EXPECT_EQ(modules_header(set), "pirate@aaaaaaaaaaaa*0.5, formal@bbbbbbbbbbbb*-1");
  const json object = json::parse(graft_object(set));
  EXPECT_EQ(object["modules"][0]["name"], "pirate");
  EXPECT_EQ(object["modules"][0]["version"], std::string(64, 'a'));
  EXPECT_EQ(object["modules"][1]["scale"], -1.0);
  EXPECT_EQ(json::parse(graft_object({}))["modules"], json::array());
}

TEST(JsonText, StringsAreAlwaysValid) {
  const std::string inputs[] = {"plain",
                                "\"\\\b\f\n\r\t\x01\x1f",
                                "\x7f",
                                "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80",
                                "\xff\xfe",
                                "\xC3",
                                "\xE2\x82",
                                "a\xF0\x9F\x98",
                                "\xC0\x80",
                                "\xED\xA0\x80",
                                "\xF5\x80\x80\x80",
                                std::string("\0x", 2)};
  for (const std::string& input : inputs) {
    const json parsed = json::parse(json_string(input));
    if (is_valid_utf8(input)) {
      EXPECT_EQ(parsed.get<std::string>(), input);
    }
  }
  EXPECT_EQ(json_string("\xE2\x82"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(count_characters("a\xC3\xA9\xFF"), 3);
}

TEST(Errors, StatusesAndShape) {
  const std::pair<ErrorCode, int> cases[] = {
      {ErrorCode::kInvalidArgument, 400},   {ErrorCode::kNotSupported, 400},
      {ErrorCode::kNotFound, 404},          {ErrorCode::kPermissionDenied, 403},
      {ErrorCode::kResourceExhausted, 429}, {ErrorCode::kUnavailable, 503},
      {ErrorCode::kCancelled, 503},         {ErrorCode::kDataCorrupt, 500},
      {ErrorCode::kInternal, 500}};
  for (const auto& [code, status] : cases) {
    const HttpResponse response = error_response(Error{code, "m", "p"});
    EXPECT_EQ(response.status, status);
    const json error = json::parse(response.body)["error"];
    for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(error.contains(key));
    bool retry = false;
    for (const Header& header : response.headers) retry = retry || header.first == "retry-after";
    EXPECT_EQ(retry, status == 429 || status == 503);
  }
}

class CountingWaker : public Waker {
 public:
  void wake() override { ++n_wakes; }
  int n_wakes = 0;
};

TEST(EventInbox, OverflowStopsTheProducer) {
  const auto waker = std::make_shared<CountingWaker>();
  InboxLimits limits;
  limits.max_events = 3;
  EventInbox inbox(limits, waker);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(inbox.push(0, token("x")));
  EXPECT_FALSE(inbox.push(0, token("x")));
  EXPECT_FALSE(inbox.push(1, token("x")));
  EXPECT_TRUE(inbox.overflowed());
  EXPECT_EQ(waker->n_wakes, 4);
}

TEST(EventInbox, BytesCountAndTakingMakesRoom) {
  InboxLimits limits;
  limits.max_bytes = 10;
  EventInbox inbox(limits, std::make_shared<CountingWaker>());
  EXPECT_TRUE(inbox.push(0, token("12345678")));
  EXPECT_EQ(inbox.take().size(), 1U);
  EXPECT_TRUE(inbox.push(0, token("12345678")));
  EXPECT_TRUE(inbox.push(0, finished(FinishReason::kStop, 2)));  // the end always fits
  EXPECT_FALSE(inbox.push(1, token("12345678")));
}

TEST(EventInbox, WholeAnswersWakeOnlyAtTheEnd) {
  const auto waker = std::make_shared<CountingWaker>();
  InboxLimits limits;
  limits.wake_on_tokens = false;
  limits.max_events = 1;
  EventInbox inbox(limits, waker);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(inbox.push(0, token("x")));
  EXPECT_EQ(waker->n_wakes, 0);
  EXPECT_TRUE(inbox.push(0, finished(FinishReason::kStop, 50)));
  EXPECT_EQ(waker->n_wakes, 1);
  inbox.close();
  EXPECT_FALSE(inbox.push(0, token("x")));
}

}  // namespace
}  // namespace graft::api
