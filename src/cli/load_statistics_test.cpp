// The numbers of a load test, from moments made up by hand.
#include "cli/load_statistics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cli/load_bodies.h"

namespace graft::cli {
namespace {

using Json = nlohmann::json;

LoadClock::time_point at(int ms) { return LoadClock::time_point(std::chrono::milliseconds(ms)); }

LoadAnswer answer(int due, const std::vector<int>& texts, int end) {
  LoadAnswer made;
  made.due = at(due);
  made.end = at(end);
  made.status = 200;
  for (const int text : texts) made.text_times.push_back(at(text));
  return made;
}

TEST(LoadStatistics, SpreadAndHistogramOfKnownValues) {
  std::vector<double> values;
  for (int i = 1; i <= 101; ++i) values.push_back(i);
  const Spread spread = spread_of(values);
  EXPECT_DOUBLE_EQ(spread.p50, 51);
  EXPECT_DOUBLE_EQ(spread.p90, 91);
  EXPECT_DOUBLE_EQ(spread.p99, 100);
  EXPECT_DOUBLE_EQ(spread.max, 101);
  EXPECT_NEAR(spread.mean, 51, 1e-9);
  EXPECT_EQ(spread_of({}).n_values, 0U);

  const auto bars = histogram_of({1, 9, 11, 100}, 2);
  ASSERT_EQ(bars.size(), 2U);
  EXPECT_NEAR(bars[0].up_to, 10, 1e-9);
  EXPECT_EQ(bars[0].n_values, 2);
  EXPECT_NEAR(bars[1].up_to, 100, 1e-9);
  EXPECT_EQ(bars[1].n_values, 2);
  EXPECT_EQ(histogram_of({5, 5, 5}, 3).front().n_values, 3);
}

TEST(LoadStatistics, LatenciesCountFromTheMomentARequestIsDue) {
  LoadRecord record;
  record.begin = at(0);
  record.end = at(2000);
  record.answers = {answer(0, {100, 110, 130}, 140), answer(1000, {1300, 1310}, 2000)};
  record.answers[0].usage_event =
      R"({"usage":{"prompt_tokens":7,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":4}}})";
  const LoadSummary summary = summarize(record, 0);
  EXPECT_EQ(summary.n_requests, 2);
  EXPECT_EQ(summary.n_failed, 0);
  EXPECT_EQ(summary.n_prompt_tokens, 7);
  EXPECT_EQ(summary.n_cached_tokens, 4);
  EXPECT_EQ(summary.n_generated_tokens, 6 + 2);  // without usage, texts count
  EXPECT_DOUBLE_EQ(summary.tokens_per_second(), 4);
  EXPECT_DOUBLE_EQ(summary.first_token_ms.p50, 200);
  EXPECT_DOUBLE_EQ(summary.gap_ms.max, 20);
  EXPECT_EQ(summary.gap_ms.n_values, 3U);
  EXPECT_DOUBLE_EQ(summary.answer_ms.max, 1000);
  EXPECT_EQ(summary.all_decode_seconds, 0);
}

TEST(LoadStatistics, FailedAnswersAreCountedByReasonAndMeasureNothing) {
  LoadRecord record;
  record.end = at(1000);
  record.answers = {answer(0, {10, 20}, 30), answer(0, {}, 5), answer(0, {1}, 5)};
  record.answers[1].failure = "status 429";
  record.answers[2].failure = "status 429";
  const LoadSummary summary = summarize(record, 3);
  EXPECT_EQ(summary.n_failed, 2);
  EXPECT_EQ(summary.failures.at("status 429"), 2);
  EXPECT_EQ(summary.answer_ms.n_values, 1U);
}

// Two streams, three answers:
//   first   10 ---- 50
//   second      20 ------- 60
//   third              55 ------ 90   (on the first's stream)
TEST(LoadStatistics, ThePhaseInWhichAllDecode) {
  LoadRecord record;
  record.begin = at(0);
  record.end = at(100);
  record.answers = {answer(0, {10, 30, 50}, 51), answer(0, {20, 40, 60}, 61),
                    answer(52, {55, 90}, 91)};
  const LoadSummary summary = summarize(record, 2);
  EXPECT_NEAR(summary.all_decode_seconds, 0.030 + 0.005, 1e-9);
  // In (20, 50]: 30, 50 and 40. In (55, 60]: 60.
  EXPECT_NEAR(summary.all_decode_tokens, 4, 1e-9);
  // From 30 to 50 and from 20 to 40; the others begin before the phase.
  EXPECT_EQ(summary.all_decode_gap_ms.n_values, 2U);
  EXPECT_DOUBLE_EQ(summary.all_decode_gap_ms.max, 20);
}

TEST(LoadBodies, PromptsDifferAfterTheCommonBeginning) {
  BenchServeCommand command;
  command.prompt_unit = PromptUnit::kTokens;
  command.prompt_length = 20;
  command.common_prefix = 12;
  command.n_vocab = 400;
  command.models = {"a", "b"};
  command.more_fields = R"({"top_p":0.9,"max_tokens":3})";
  std::set<Json> seen;
  const LoadBodies bodies(command);
  const Json first = Json::parse(bodies.body(0));
  for (std::size_t i = 0; i < 2000; ++i) {
    const Json body = Json::parse(bodies.body(i));
    EXPECT_EQ(body["model"], i % 2 == 0 ? "a" : "b");
    const auto tokens = body["prompt"].get<std::vector<int>>();
    ASSERT_EQ(tokens.size(), 20U);
    for (std::size_t k = 0; k < 12; ++k) EXPECT_EQ(tokens[k], first["prompt"][k]);
    for (const int token : tokens) EXPECT_TRUE(token >= 100 && token < 400) << token;
    // Two tokens behind the common ones already tell requests apart.
    EXPECT_TRUE(seen.insert(Json(std::vector<int>{tokens[12], tokens[13]})).second) << i;
  }
  EXPECT_EQ(first["top_p"], 0.9);
  EXPECT_EQ(first["max_tokens"], 3);
  EXPECT_EQ(first["stream_options"]["include_usage"], true);
  EXPECT_EQ(bodies.body(5), LoadBodies(command).body(5));
  command.seed = 2;
  EXPECT_NE(Json::parse(bodies.body(0))["prompt"][12], first["prompt"][12]);
}

TEST(LoadBodies, ChatAndLlamaServersAdapters) {
  BenchServeCommand command;
  command.chat = true;
  command.prompt_length = 5;
  command.lora_ids = {3};
  command.ignore_eos = false;
  const LoadBodies bodies(command);
  const Json body = Json::parse(bodies.body(0));
  EXPECT_STREQ(bodies.path(), "/v1/chat/completions");
  const auto text = body["messages"][0]["content"].get<std::string>();
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 4);
  EXPECT_EQ(body["lora"], Json::parse(R"([{"id":3,"scale":1.0}])"));
  EXPECT_FALSE(body.contains("ignore_eos"));
  EXPECT_FALSE(body.contains("model"));
}

}  // namespace
}  // namespace graft::cli
