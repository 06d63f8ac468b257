// The sampler under a constraint, over the counting model's vocabulary.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/sampling/sampler.h"
#include "text/constraint.h"
#include "text/test_vocabulary.h"

namespace graft {
namespace {

class ConstrainedSamplerTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = load_counting_model();
    ASSERT_NE(model_, nullptr);
    auto vocabulary = Vocabulary::create(llama_model_get_vocab(model_.get()));
    ASSERT_TRUE(vocabulary);
    vocabulary_ = std::move(*vocabulary);
    logits_.assign(static_cast<std::size_t>(vocabulary_->size()), -3.0F);
  }

  ConstraintState state(const std::string& regex) {
    auto made =
        Constraint::compile(*vocabulary_, {.kind = ConstraintSource::Kind::kRegex, .text = regex});
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return ConstraintState(*made);
  }
  TokenId token(const std::string& text) {
    const auto tokens = vocabulary_->tokenize(text, {.add_special = false});
    EXPECT_EQ(tokens->size(), 1U) << text;
    return tokens->front();
  }
  float& logit(TokenId token) { return logits_[static_cast<std::size_t>(token)]; }
  std::unique_ptr<Sampler> sampler(const SamplingParams& params) {
    return std::move(*Sampler::create(params, vocabulary_->size()));
  }
  TokenId eos() { return vocabulary_->eos(); }

  ModelPtr model_;
  std::unique_ptr<Vocabulary> vocabulary_;
  std::vector<float> logits_;
  SampleScratch scratch_;
};

TEST_F(ConstrainedSamplerTest, GreedyTakesTheBestThatFits) {
  logit(token("x")) = 9;
  logit(token("b")) = 5;
  logit(token("a")) = 4;
  ConstraintState constraint = state("[ab]c");
  const auto s = sampler({.temperature = 0.0F});
  EXPECT_EQ(s->sample(logits_, {}, scratch_, &constraint)->token, token("b"));
  // The same state, until the token is accepted.
  EXPECT_EQ(s->sample(logits_, {}, scratch_, &constraint)->token, token("b"));
  ASSERT_TRUE(constraint.accept(token("b")));
  EXPECT_EQ(s->sample(logits_, {}, scratch_, &constraint)->token, token("c"));
}

// Drawn, checked and perhaps drawn again, a token comes as often as its probability among those
// that fit says: drawing from them at once would give the same.
TEST_F(ConstrainedSamplerTest, DrawsFollowTheProbabilitiesOfWhatFits) {
  logit(token("a")) = std::log(0.3F) + 5;
  logit(token("b")) = std::log(0.1F) + 5;
  logit(token("x")) = std::log(0.6F) + 5;
  for (const SamplingParams& params : std::vector<SamplingParams>{
           {.seed = 3}, {.top_k = 50, .seed = 3}, {.top_p = 0.999F, .seed = 3}}) {
    ConstraintState constraint = state("[ab]");
    const auto s = sampler(params);
    std::map<TokenId, int> counts;
    constexpr int kDraws = 8000;
    for (int i = 0; i < kDraws; ++i) ++counts[s->sample(logits_, {}, scratch_, &constraint)->token];
    EXPECT_EQ(counts.size(), 2U);
    EXPECT_NEAR(counts[token("a")] / static_cast<double>(kDraws), 0.75, 0.02);
  }
}

TEST_F(ConstrainedSamplerTest, TheEndOnlyWhereTheAnswerMayEnd) {
  logit(eos()) = 9;
  logit(token("a")) = 1;
  ConstraintState constraint = state("a{1,2}");
  const auto s = sampler({.temperature = 0.0F});
  EXPECT_EQ(s->sample(logits_, {}, scratch_, &constraint)->token, token("a"));
  ASSERT_TRUE(constraint.accept(token("a")));
  EXPECT_EQ(s->sample(logits_, {}, scratch_, &constraint)->token, eos());
  const std::vector<TokenId> ending = {eos()};
  EXPECT_EQ(s->sample(logits_, ending, scratch_, &constraint)->token, token("a"));
  ASSERT_TRUE(constraint.accept(token("a")));
  // Nothing but the end fits: it comes although the caller suppressed it.
  EXPECT_TRUE(constraint.must_end());
  const auto model = vocabulary_->end_of_generation_ids();
  const std::vector<TokenId> all_ending(model.begin(), model.end());
  EXPECT_EQ(s->sample(logits_, all_ending, scratch_, &constraint)->token, eos());
}

TEST_F(ConstrainedSamplerTest, BiasesAndPenaltiesMoveTheChoiceInsideTheConstraint) {
  logit(token("a")) = 2;
  logit(token("b")) = 1;
  ConstraintState constraint = state("[ab]+");
  const auto s =
      sampler({.temperature = 0.0F, .logit_bias = {{token("a"), -100.0F}, {token("x"), 100.0F}}});
  EXPECT_EQ(s->sample(logits_, {}, scratch_, &constraint)->token, token("b"));
  // All that fits is biased away, and still only that fits.
  const auto never =
      sampler({.temperature = 0.0F, .logit_bias = {{token("a"), -100.0F}, {token("b"), -100.0F}}});
  EXPECT_EQ(never->sample(logits_, {}, scratch_, &constraint)->token, token("a"));
}

TEST_F(ConstrainedSamplerTest, LogprobsAreOfTheRawDistribution) {
  logit(token("x")) = 9;
  logit(token("b")) = 5;
  SamplingParams params{.temperature = 0.0F};
  params.n_logprobs = 2;
  ConstraintState constraint = state("[ab]");
  const auto sampled = sampler(params)->sample(logits_, {}, scratch_, &constraint);
  ASSERT_TRUE(sampled);
  EXPECT_EQ(sampled->token, token("b"));
  EXPECT_EQ(sampled->top[0].token, token("x"));
  EXPECT_NEAR(sampled->top[0].logprob - sampled->logprob, 4.0, 1e-5);
}

TEST_F(ConstrainedSamplerTest, WhereNothingFitsTheRequestFails) {
  ConstraintState constraint = state("ab");
  logit(token("a")) = -INFINITY;  // a row that the model gives no probability
  const auto sampled = sampler({.temperature = 0.0F})->sample(logits_, {}, scratch_, &constraint);
  ASSERT_FALSE(sampled);
  EXPECT_EQ(sampled.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace graft
