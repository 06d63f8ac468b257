#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace graft {
namespace {

constexpr std::int32_t kVocab = 5000;
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(unsigned seed, std::size_t n = kVocab, float deviation = 3.0F) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> logits(n);
  std::generate(logits.begin(), logits.end(), [&] { return normal(rng); });
  return logits;
}

TokenId argmax(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::unique_ptr<Sampler> sampler(const SamplingParams& params, std::int32_t n_vocab = kVocab) {
  auto result = Sampler::create(params, n_vocab);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return std::move(result).value();
}

TokenId next(Sampler& s, const std::vector<float>& logits, std::vector<TokenId> suppressed = {}) {
  SampleScratch scratch;
  auto result = s.sample(logits, suppressed, scratch);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return result ? result->token : -1;
}

std::vector<TokenId> run(SamplingParams params, int n) {
  auto s = sampler(params);
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) {
    tokens.push_back(next(*s, random_logits(static_cast<unsigned>(i), kVocab, 1.0F)));
    s->accept(tokens.back());
  }
  return tokens;
}

TEST(SamplerTest, GreedyIsArgmax) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<float> logits = random_logits(seed);
    EXPECT_EQ(next(*sampler({.temperature = 0.0F}), logits), argmax(logits));
    EXPECT_EQ(next(*sampler({.temperature = 1.0F, .top_k = 1}), logits), argmax(logits));
    EXPECT_EQ(next(*sampler({.temperature = 1.0F, .top_p = 1e-6F}), logits), argmax(logits));
    EXPECT_EQ(next(*sampler({.temperature = 1.0F, .min_p = 1.0F}), logits), argmax(logits));
  }
}

TEST(SamplerTest, SameSeedSameTokens) {
  const std::vector<SamplingParams> all = {{.temperature = 1.0F},
                                           {.temperature = 0.8F, .top_k = 40},
                                           {.temperature = 1.0F, .top_p = 0.9F},
                                           {.temperature = 1.0F, .min_p = 0.05F},
                                           {.top_k = 200, .top_p = 0.9F, .min_p = 0.01F}};
  for (SamplingParams params : all) {
    for (const std::uint32_t seed : {0U, 42U, 0xFFFFFFFFU}) {
      params.seed = seed;
      EXPECT_EQ(run(params, 40), run(params, 40));
    }
    params.seed = 1;
    const std::vector<TokenId> one = run(params, 40);
    params.seed = 2;
    EXPECT_NE(one, run(params, 40));
    params.seed.reset();
    EXPECT_NE(run(params, 40), run(params, 40));
  }
}

// Draws must follow the distribution, whichever path makes them.
TEST(SamplerTest, FrequenciesFollowTheProbabilities) {
  std::vector<float> logits(kVocab, -50.0F);
  const std::map<TokenId, double> probability = {{7, 0.5}, {64, 0.3}, {4999, 0.2}};
  for (const auto& [token, p] : probability) {
    logits[static_cast<std::size_t>(token)] = static_cast<float>(2.0 * std::log(p));
  }
  const std::vector<SamplingParams> all = {{.temperature = 2.0F, .seed = 5},
                                           {.temperature = 2.0F, .top_k = 3, .seed = 5},
                                           {.temperature = 2.0F, .top_p = 0.99F, .seed = 5},
                                           {.temperature = 2.0F, .min_p = 0.1F, .seed = 5}};
  for (const SamplingParams& params : all) {
    auto s = sampler(params);
    SampleScratch scratch;
    std::map<TokenId, int> counts;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      auto result = s->sample(logits, {}, scratch);
      ASSERT_TRUE(result);
      ++counts[result->token];
    }
    ASSERT_EQ(counts.size(), 3U);
    for (const auto& [token, p] : probability) {
      EXPECT_NEAR(counts[token] / static_cast<double>(kDraws), p, 0.015) << token;
    }
  }
}

TEST(SamplerTest, TopPKeepsOnlyTheNucleus) {
  std::vector<float> logits(kVocab, -20.0F);
  logits[3] = std::log(0.6F);
  logits[4] = std::log(0.3F);
  logits[5] = std::log(0.1F);
  auto s = sampler({.top_p = 0.85F, .seed = 9});
  for (int i = 0; i < 500; ++i) {
    EXPECT_NE(next(*s, logits), 5);
  }
}

TEST(SamplerTest, BiasForcesAndForbids) {
  const std::vector<float> logits = random_logits(1);
  EXPECT_EQ(next(*sampler({.temperature = 0.0F, .logit_bias = {{17, 100.0F}}}), logits), 17);
  const TokenId best = argmax(logits);
  EXPECT_NE(next(*sampler({.temperature = 0.0F, .logit_bias = {{best, -100.0F}}}), logits), best);
  // The largest finite bias must not break anything.
  EXPECT_EQ(next(*sampler({.temperature = 1e-4F,
                           .repetition_penalty = 1e-3F,
                           .seed = 1,
                           .logit_bias = {{17, std::numeric_limits<float>::max()}}}),
                 logits),
            17);
}

TEST(SamplerTest, PenaltiesEqualLlamas) {
  SamplingParams params{.temperature = 0.0F,
                        .repetition_penalty = 1.3F,
                        .frequency_penalty = 0.4F,
                        .presence_penalty = 0.2F,
                        .penalty_last_n = 8};
  PenaltyWindow window(params);
  llama_sampler* reference = llama_sampler_init_penalties(50, 8, 1.3F, 0.4F, 0.2F);
  std::mt19937 rng(11);
  for (int i = 0; i < 200; ++i) {
    const auto token = static_cast<TokenId>(rng() % 12);
    window.accept(token);
    llama_sampler_accept(reference, token);
    std::vector<float> logits = random_logits(static_cast<unsigned>(i), 50);
    std::vector<llama_token_data> data;
    for (std::size_t id = 0; id < logits.size(); ++id) {
      data.push_back({static_cast<TokenId>(id), logits[id], 0.0F});
    }
    llama_token_data_array array{data.data(), data.size(), -1, false};
    llama_sampler_apply(reference, &array);
    window.apply(logits);
    for (std::size_t id = 0; id < logits.size(); ++id) {
      ASSERT_NEAR(logits[id], data[id].logit, 1e-5) << i << " " << id;
    }
  }
  llama_sampler_free(reference);
}

TEST(SamplerTest, PenaltiesMoveTheChoiceOn) {
  const std::vector<float> logits = random_logits(2);
  auto s = sampler({.temperature = 0.0F, .repetition_penalty = 1000.0F, .penalty_last_n = 2});
  const TokenId first = next(*s, logits);
  s->accept(first);
  const TokenId second = next(*s, logits);
  EXPECT_NE(first, second);
  s->accept(second);
  const TokenId third = next(*s, logits);
  s->accept(third);
  EXPECT_EQ(next(*s, logits), first);  // it has left the window of two
  s->accept(-5);
  s->accept(kVocab);  // ignored
  EXPECT_EQ(next(*s, logits), first);
}

TEST(SamplerTest, OnlyAllowedTokensAreChosen) {
  const std::vector<float> logits = random_logits(3);
  const std::vector<TokenId> allowed = {7, 4999, 12};
  const TokenId best = *std::max_element(allowed.begin(), allowed.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<std::size_t>(a)] < logits[static_cast<std::size_t>(b)];
  });
  EXPECT_EQ(next(*sampler({.temperature = 0.0F, .allowed_tokens = allowed}), logits), best);
  for (const std::int32_t top_k : {0, 40}) {
    auto s = sampler({.temperature = 5.0F, .top_k = top_k, .seed = 1, .allowed_tokens = allowed});
    std::map<TokenId, int> seen;
    for (int i = 0; i < 200; ++i) ++seen[next(*s, logits)];
    EXPECT_EQ(seen.size(), 3U);
    for (const TokenId token : allowed) EXPECT_EQ(seen.count(token), 1U);
  }
  EXPECT_FALSE(Sampler::create({.allowed_tokens = {kVocab}}, kVocab));
  EXPECT_FALSE(Sampler::create({.allowed_tokens = {-1}}, kVocab));
}

TEST(SamplerTest, SuppressedTokensAreNeverChosen) {
  const std::vector<float> logits = random_logits(3);
  const TokenId best = argmax(logits);
  EXPECT_NE(next(*sampler({.temperature = 0.0F}), logits, {best, -1, kVocab}), best);
  std::vector<float> two(10, -std::numeric_limits<float>::infinity());
  two[4] = 0.0F;
  two[5] = 9.0F;
  for (const SamplingParams& params : std::vector<SamplingParams>{{.seed = 1},
                                                                  {.top_k = 5, .seed = 1},
                                                                  {.top_p = 0.5F, .seed = 1},
                                                                  {.min_p = 0.5F, .seed = 1}}) {
    auto s = sampler(params, 10);
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(next(*s, two, {5}), 4);
    }
    SampleScratch scratch;
    const std::vector<TokenId> both = {4, 5};
    EXPECT_FALSE(s->sample(two, both, scratch));
  }
}

TEST(SamplerTest, LogprobsAreOfTheRawDistribution) {
  SamplingParams params{.temperature = 0.5F, .top_k = 3, .seed = 4, .logit_bias = {{9, 50.0F}}};
  params.n_logprobs = 20;
  const std::vector<float> logits = random_logits(5, 49152, 4.0F);
  auto s = sampler(params, 49152);
  SampleScratch scratch;
  auto result = s->sample(logits, {}, scratch);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->token, 9);
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit));
  }
  const double log_sum = std::log(sum);
  EXPECT_NEAR(result->logprob, static_cast<double>(logits[9]) - log_sum, 1e-5);
  ASSERT_EQ(result->top.size(), 20U);
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(result->top[i].logprob, static_cast<double>(sorted[i]) - log_sum, 1e-5);
    EXPECT_EQ(logits[static_cast<std::size_t>(result->top[i].token)], sorted[i]);
  }
  params.n_logprobs = 0;
  auto chosen_only = sampler(params, 49152)->sample(logits, {}, scratch);
  ASSERT_TRUE(chosen_only);
  EXPECT_TRUE(chosen_only->top.empty());
  EXPECT_EQ(chosen_only->logprob, result->logprob);
}

TEST(SamplerTest, FewerTokensThanLogprobs) {
  SamplingParams params{.temperature = 0.0F};
  params.n_logprobs = 20;
  SampleScratch scratch;
  const std::vector<float> logits = {0.0F, -std::numeric_limits<float>::infinity(), 1.0F};
  auto result = sampler(params, 3)->sample(logits, {}, scratch);
  ASSERT_TRUE(result);
  ASSERT_EQ(result->top.size(), 3U);
  EXPECT_TRUE(std::isfinite(result->top[2].logprob));
}

TEST(SamplerTest, BadRowsAreErrors) {
  SampleScratch scratch;
  auto s = sampler({.seed = 1});
  EXPECT_FALSE(s->sample(std::vector<float>(kVocab - 1, 0.0F), {}, scratch));
  std::vector<float> logits = random_logits(6);
  logits[4321] = kNan;
  auto result = s->sample(logits, {}, scratch);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInternal);
}

TEST(SamplerTest, BadValuesAreRefusedByName) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<SamplingParams, std::string>> bad = {
      {{.temperature = -0.1F}, "temperature"},
      {{.temperature = kNan}, "temperature"},
      {{.temperature = inf}, "temperature"},
      {{.top_k = -1}, "top_k"},
      {{.top_p = 0.0F}, "top_p"},
      {{.top_p = 1.1F}, "top_p"},
      {{.top_p = kNan}, "top_p"},
      {{.min_p = -0.1F}, "min_p"},
      {{.min_p = 2.0F}, "min_p"},
      {{.repetition_penalty = 0.0F}, "repetition_penalty"},
      {{.repetition_penalty = inf}, "repetition_penalty"},
      {{.frequency_penalty = 2.1F}, "frequency_penalty"},
      {{.presence_penalty = kNan}, "presence_penalty"},
      {{.penalty_last_n = -1}, "penalty_last_n"},
      {{.penalty_last_n = INT32_MAX}, "penalty_last_n"},
      {{.logit_bias = {{-1, 0.0F}}}, "logit_bias"},
      {{.logit_bias = {{kVocab, 0.0F}}}, "logit_bias"},
      {{.logit_bias = {{1, inf}}}, "logit_bias"},
      {{.logit_bias = {{1, 0.5F}, {1, 0.5F}}}, "logit_bias"},
      {{.n_logprobs = 21}, "logprobs"},
      {{.n_logprobs = -1}, "logprobs"}};
  for (const auto& [params, name] : bad) {
    auto result = Sampler::create(params, kVocab);
    ASSERT_FALSE(result) << name;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(result.error().param, name);
    EXPECT_NE(result.error().message.find(name), std::string::npos);
  }
}

TEST(SamplerTest, ExtremeValuesInsideTheRangesWork) {
  const std::vector<float> logits = random_logits(8, kVocab, 30.0F);
  for (const float temperature : {1e-4F, 1000.0F}) {
    for (SamplingParams params : std::vector<SamplingParams>{{},
                                                             {.top_k = INT32_MAX},
                                                             {.top_p = 0.9999999F},
                                                             {.top_p = 1e-8F},
                                                             {.min_p = 1e-30F}}) {
      params.temperature = temperature;
      params.seed = 3;
      const TokenId token = next(*sampler(params), logits);
      EXPECT_TRUE(token >= 0 && token < kVocab);
    }
  }
}

}  // namespace
}  // namespace graft
