// Pooling: mean and last, length 1, rows counted once, and rows that have no finite sum.
#include "scheduler/prompt_embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace graft {
namespace {

using Row = std::vector<float>;

TEST(PromptEmbedding, MeanOfAllRowsOfLengthOne) {
  PromptEmbedding embedding(Pooling::kMean, 3);
  EXPECT_EQ(embedding.n_known(), 0);
  for (const Row& row : {Row{1, 0}, Row{2, 1}, Row{0, 3}}) embedding.add(row);
  EXPECT_EQ(embedding.n_known(), embedding.n_rows());
  const auto values = embedding.take();
  ASSERT_TRUE(values);
  EXPECT_NEAR((*values)[0], 0.6, 1e-7);  // of (3, 4) / 5
  EXPECT_NEAR((*values)[1], 0.8, 1e-7);
}

TEST(PromptEmbedding, LastWantsOneRowOnly) {
  PromptEmbedding embedding(Pooling::kLast, 100);
  EXPECT_EQ(embedding.n_known(), 99);
  embedding.add(Row{0, -2});
  EXPECT_EQ(*embedding.take(), (Row{0, -1}));
}

TEST(PromptEmbedding, AZeroStateStaysZeroAndABrokenOneIsAnError) {
  PromptEmbedding zero(Pooling::kMean, 1);
  zero.add(Row{0, 0});
  EXPECT_EQ(*zero.take(), (Row{0, 0}));
  PromptEmbedding broken(Pooling::kMean, 2);
  broken.add(Row{1, 0});
  broken.add(Row{std::numeric_limits<float>::infinity(), 0});
  EXPECT_FALSE(broken.take());
}

}  // namespace
}  // namespace graft
