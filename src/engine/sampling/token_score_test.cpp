// Scores of given tokens: the numbers of the raw distribution, ranks with ties, and rows that have
// none.
#include "engine/sampling/token_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/sampling/sampler.h"

namespace graft {
namespace {

TEST(TokenScore, IsTheLogOfTheTokensShare) {
  SampleScratch scratch;
  const std::vector<float> logits = {std::log(5.0F), std::log(3.0F), std::log(2.0F)};
  const auto score = score_token(logits, 1, 2, scratch.buffers());
  ASSERT_TRUE(score);
  EXPECT_NEAR(score->logprob, std::log(0.3), 1e-6);
  ASSERT_EQ(score->top.size(), 2U);
  EXPECT_EQ(score->top[0].token, 0);
  EXPECT_NEAR(score->top[0].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(score->top[1].token, 1);
  EXPECT_EQ(score->top[1].logprob, score->logprob);
  EXPECT_TRUE(score_token(logits, 1, 0, scratch.buffers())->top.empty());
}

TEST(TokenScore, MoreAlternativesThanTokensAreAllOfThem) {
  SampleScratch scratch;
  const std::vector<float> logits = {1, 2, 3};
  EXPECT_EQ(score_token(logits, 0, 20, scratch.buffers())->top.size(), 3U);
}

TEST(TokenScore, RanksCountTheLikelierOnes) {
  const std::vector<float> logits = {1, 4, 4, -std::numeric_limits<float>::infinity(), 2};
  EXPECT_EQ(rank_of(logits, 1), 1);
  EXPECT_EQ(rank_of(logits, 2), 1);
  EXPECT_EQ(rank_of(logits, 4), 3);
  EXPECT_EQ(rank_of(logits, 0), 4);
  EXPECT_EQ(rank_of(logits, 3), 5);
}

TEST(TokenScore, AnImpossibleTokenHasAFiniteScoreAndABrokenRowHasNone) {
  SampleScratch scratch;
  std::vector<float> logits = {1, 2, -std::numeric_limits<float>::infinity()};
  EXPECT_EQ(score_token(logits, 2, 0, scratch.buffers())->logprob, -9999.0F);
  logits[0] = std::nanf("");
  EXPECT_FALSE(score_token(logits, 1, 0, scratch.buffers()));
}

}  // namespace
}  // namespace graft
