// What answers report beside their text: token ids, names of tokens, timings.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/event_stream.h"
#include "api/whole_answer.h"

namespace graft::api {
namespace {

using nlohmann::json;

AnswerShape shape(bool chat) {
  AnswerShape made;
  made.chat = chat;
  made.id = "id-1";
  made.graft_json = "{}";
  made.report.token_ids = true;
  made.report.tokens = true;
  made.report.timings = true;
  made.prompt_token_ids = {{4, 5}};
  return made;
}

TokenOutput token(TokenId id, const std::string& text) {
  TokenOutput output;
  output.token = id;
  output.text = text;
  output.logprob = TokenLogprob{id, text, -0.5F};
  output.top_logprobs = {{id, text, -0.5F}};
  return output;
}

Finished finished(std::int32_t n_tokens) {
  Finished event;
  event.n_prompt_tokens = 2;
  event.n_generated_tokens = n_tokens;
  event.timings = {1, 10, 4};
  return event;
}

std::vector<json> events_of(const std::string& stream) {
  std::vector<json> events;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    const std::string line = stream.substr(at, end - at);
    if (line != "data: [DONE]") events.push_back(json::parse(line.substr(6)));
    at = end + 2;
  }
  return events;
}

TEST(AnswerReport, WholeAnswers) {
  for (const bool chat : {true, false}) {
    std::string out;
    WholeAnswer whole(shape(chat));
    whole.append(out, 0, token(7, "a"));
    whole.append(out, 0, token(8, ""));
    whole.append(out, 0, finished(2));
    const json body = json::parse(out);
    const json& choice = body["choices"][0];
    EXPECT_EQ(choice["token_ids"], json({7, 8}));
    EXPECT_EQ(choice["tokens"], json({7, 8}));
    EXPECT_EQ((chat ? body : choice)["prompt_token_ids"], json({4, 5}));
    EXPECT_EQ(body["timings"]["prompt_n"], 2);
    EXPECT_EQ(body["timings"]["prompt_ms"], 10);
    EXPECT_EQ(body["timings"]["predicted_n"], 2);
    EXPECT_EQ(body["timings"]["predicted_per_second"], 500);
  }
}

TEST(AnswerReport, Streams) {
  for (const bool chat : {true, false}) {
    std::string out;
    EventStream stream(shape(chat));
    stream.append(out, 0, Started{2});
    stream.append(out, 0, token(7, "a"));
    stream.append(out, 0, token(8, ""));
    stream.append(out, 0, finished(2));
    const auto events = events_of(out);
    ASSERT_EQ(events.size(), 4U);
    EXPECT_EQ((chat ? events[0] : events[0]["choices"][0])["prompt_token_ids"], json({4, 5}));
    EXPECT_EQ(events[1]["choices"][0]["token_ids"], json({7}));
    EXPECT_EQ(events[2]["choices"][0]["tokens"], json({8}));
    EXPECT_EQ(events[3]["timings"]["predicted_n"], 2);
    EXPECT_FALSE(events[1].contains("timings"));
  }
}

TEST(AnswerReport, TokensNamedById) {
  AnswerShape named = shape(false);
  named.logprobs = true;
  named.report.tokens_as_ids = true;
  std::string out;
  WholeAnswer completion(named);
  completion.append(out, 0, token(7, "a"));
  completion.append(out, 0, finished(1));
  const json logprobs = json::parse(out)["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"token_id:7"}));
  EXPECT_EQ(logprobs["top_logprobs"][0], json({{"token_id:7", -0.5}}));
  named.chat = true;
  out.clear();
  WholeAnswer chat(named);
  chat.append(out, 0, token(7, "a"));
  chat.append(out, 0, finished(1));
  EXPECT_EQ(json::parse(out)["choices"][0]["logprobs"]["content"][0]["token"], "token_id:7");
}

}  // namespace
}  // namespace graft::api
