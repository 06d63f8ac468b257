#include "engine/sampling/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace graft {
namespace {

using Ids = std::vector<TokenId>;

// Shapes of real distributions: peaked, ordinary, flat, with ties, with suppressed tokens.
std::vector<float> random_logits(std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  const float deviation = std::vector<float>{0.01F, 0.5F, 2.0F, 4.0F, 12.0F}[rng() % 5];
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> logits(n);
  std::generate(logits.begin(), logits.end(), [&] { return normal(rng); });
  if (rng() % 3 == 0) {
    logits[rng() % n] = 5.0F * deviation + 10.0F;
  }
  if (rng() % 4 == 0) {
    for (std::size_t i = 0; i < n; i += 3) {
      logits[i] = -std::numeric_limits<float>::infinity();
    }
    logits[1 % n] = 0.0F;
  }
  return logits;
}

Ids ranked(const std::vector<float>& logits) {
  Ids ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  return ids;
}

Ids ids_of(const CandidateScratch& scratch) {
  Ids ids;
  for (const llama_token_data& candidate : scratch.candidates) {
    ids.push_back(candidate.id);
  }
  return ids;
}

TEST(LogitRowTest, SelectTopIsExactWithTies) {
  CandidateScratch scratch;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const std::size_t n = std::vector<std::size_t>{1, 50, 64, 1000, 20000}[seed % 5];
    std::vector<float> logits = random_logits(n, seed);
    if (seed % 2 == 0) {
      for (float& logit : logits) {
        logit = std::round(logit);  // many ties
      }
    }
    const Ids expected = ranked(logits);
    for (const std::size_t k :
         {std::size_t{1}, std::size_t{5}, std::size_t{40}, std::size_t{700}, std::size_t{100000}}) {
      auto row = LogitRow::open(logits, scratch);
      ASSERT_TRUE(row);
      row->select_top(k);
      const Ids want(expected.begin(),
                     expected.begin() + static_cast<std::ptrdiff_t>(std::min(k, n)));
      ASSERT_EQ(ids_of(scratch), want) << "seed " << seed << " k " << k;
    }
  }
}

// What llama.cpp's own samplers leave over of the whole vocabulary.
std::set<TokenId> llama_nucleus(const std::vector<float>& logits, float p, float temperature) {
  std::vector<llama_token_data> data;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    data.push_back({static_cast<TokenId>(i), logits[i], 0.0F});
  }
  llama_token_data_array array{data.data(), data.size(), -1, false};
  std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> temp(
      llama_sampler_init_temp(temperature), llama_sampler_free);
  std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> top_p(
      llama_sampler_init_top_p(p, 1), llama_sampler_free);
  llama_sampler_apply(temp.get(), &array);
  llama_sampler_apply(top_p.get(), &array);
  std::set<TokenId> ids;
  for (std::size_t i = 0; i < array.size; ++i) {
    ids.insert(array.data[i].id);
  }
  return ids;
}

// Number of tokens in the nucleus, and the mass before and with its last token, in doubles.
std::size_t exact_nucleus(const std::vector<float>& logits, const Ids& order, float p,
                          float temperature) {
  std::vector<double> weights;
  for (const TokenId id : order) {
    weights.push_back(std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) -
                                static_cast<double>(logits[static_cast<std::size_t>(order[0])])) /
                               static_cast<double>(temperature)));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double mass = 0.0;
  std::size_t n = 0;
  while (n < weights.size() && mass < static_cast<double>(p) * total) {
    mass += weights[n++];
  }
  return n;
}

TEST(LogitRowTest, NucleusEqualsLlamas) {
  CandidateScratch scratch;
  int n_equal = 0;
  int n_cases = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const std::size_t n = std::vector<std::size_t>{3, 100, 1500, 20000, 49152}[seed % 5];
    const std::vector<float> logits = random_logits(n, seed);
    const Ids order = ranked(logits);
    const float p = std::vector<float>{0.1F, 0.5F, 0.9F, 0.95F, 0.999F}[seed / 5 % 5];
    const float temperature = std::vector<float>{0.2F, 0.7F, 1.0F, 1.5F}[seed % 4];
    auto row = LogitRow::open(logits, scratch);
    ASSERT_TRUE(row);
    row->select_nucleus(p, 0.0F, temperature);
    const Ids ids = ids_of(scratch);
    const std::set<TokenId> ours(ids.begin(), ids.end());
    ASSERT_EQ(ours.size(), ids.size());
    // It is exactly a head of the ranking.
    ASSERT_EQ(ours, std::set<TokenId>(order.begin(),
                                      order.begin() + static_cast<std::ptrdiff_t>(ours.size())));
    // llama.cpp adds up 49,152 floats one by one, we in blocks, the reference in doubles. Where the
    // last tokens weigh less than that rounding, the sets may differ by some of them.
    const std::size_t exact = exact_nucleus(logits, order, p, temperature);
    const auto mass_of = [&](std::size_t count) {
      std::size_t low = std::min(count, exact);
      double mass = 0.0;
      const auto weight = [&](std::size_t i) {
        return std::exp((static_cast<double>(logits[static_cast<std::size_t>(order[i])]) -
                         static_cast<double>(logits[static_cast<std::size_t>(order[0])])) /
                        static_cast<double>(temperature));
      };
      for (std::size_t i = low; i < std::max(count, exact); ++i) {
        mass += weight(i);
      }
      double total = 0.0;
      for (std::size_t i = 0; i < n; ++i) {
        total += weight(i);
      }
      return mass / total;
    };
    EXPECT_LE(mass_of(ours.size()), 1e-6 + 1.0 / static_cast<double>(n) * 1e-2)
        << "seed " << seed << ": " << ours.size() << " against " << exact;
    const std::set<TokenId> theirs = llama_nucleus(logits, p, temperature);
    EXPECT_LE(mass_of(theirs.size()), 2e-4) << "seed " << seed;
    ++n_cases;
    n_equal += theirs.size() == ours.size() ? 1 : 0;
  }
  // Equal in all but those cases of rounding.
  EXPECT_GE(n_equal * 10, n_cases * 9) << n_equal << " of " << n_cases;
}

TEST(LogitRowTest, MinPKeepsTheLikely) {
  CandidateScratch scratch;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const std::vector<float> logits = random_logits(5000, seed);
    const float min_p = std::vector<float>{0.001F, 0.05F, 0.5F, 1.0F}[seed % 4];
    const float temperature = 0.3F + 0.2F * static_cast<float>(seed % 7);
    auto row = LogitRow::open(logits, scratch);
    ASSERT_TRUE(row);
    row->select_nucleus(1.0F, min_p, temperature);
    const Ids ids = ids_of(scratch);
    const std::set<TokenId> kept(ids.begin(), ids.end());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double ratio =
          std::exp((static_cast<double>(logits[i]) - static_cast<double>(row->max())) /
                   static_cast<double>(temperature));
      const bool inside = kept.contains(static_cast<TokenId>(i));
      if (ratio >= 1.0001 * static_cast<double>(min_p) || ratio == 1.0) {
        ASSERT_TRUE(inside);
      } else if (ratio < 0.9999 * static_cast<double>(min_p)) {
        ASSERT_FALSE(inside);
      }
    }
  }
}

TEST(LogitRowTest, NucleusOfEqualLogitsTakesTheLowestIds) {
  CandidateScratch scratch;
  const std::vector<float> logits(10000, 1.5F);
  auto row = LogitRow::open(logits, scratch);
  ASSERT_TRUE(row);
  row->select_nucleus(0.25F, 0.0F, 1.0F);
  ASSERT_EQ(scratch.candidates.size(), 2500U);
  for (const llama_token_data& candidate : scratch.candidates) {
    EXPECT_LT(candidate.id, 2500);
    EXPECT_EQ(candidate.p, 1.0F);
  }
}

TEST(LogitRowTest, NucleusAndMinPTogether) {
  CandidateScratch scratch;
  std::vector<float> logits(1000, -40.0F);
  for (std::size_t i = 0; i < 10; ++i) {
    logits[i * 100] = std::log(static_cast<float>(i + 1) / 55.0F);
  }
  auto row = LogitRow::open(logits, scratch);
  ASSERT_TRUE(row);
  // 10/55 + 9/55 + 8/55 + 7/55 = 0.62; only 10 and 9 are at least 0.85 of the largest.
  row->select_nucleus(0.6F, 0.85F, 1.0F);
  Ids ids = ids_of(scratch);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids, (Ids{800, 900}));
  row->select_nucleus(0.6F, 0.0F, 1.0F);
  EXPECT_EQ(scratch.candidates.size(), 4U);
  EXPECT_EQ(draw_weighted(scratch.candidates, 0.0), scratch.candidates.front().id);
  EXPECT_EQ(draw_weighted(scratch.candidates, 0.9999999), scratch.candidates.back().id);
}

TEST(LogitRowTest, DrawWalksTheCumulatedProbability) {
  CandidateScratch scratch;
  std::vector<float> logits(300, -std::numeric_limits<float>::infinity());
  logits[10] = std::log(0.5F);
  logits[100] = std::log(0.25F);
  logits[299] = std::log(0.25F);
  auto row = LogitRow::open(logits, scratch);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->draw(0.0, 1.0F), 10);
  EXPECT_EQ(row->draw(0.499, 1.0F), 10);
  EXPECT_EQ(row->draw(0.501, 1.0F), 100);
  EXPECT_EQ(row->draw(0.749, 1.0F), 100);
  EXPECT_EQ(row->draw(0.751, 1.0F), 299);
  EXPECT_EQ(row->draw(0.99999999999, 1.0F), 299);
  EXPECT_EQ(row->draw(0.99999999999, 0.001F), 10);  // all else weighs nothing
}

TEST(LogitRowTest, RowsThatCannotBeSampledAreRefused) {
  CandidateScratch scratch;
  std::vector<float> logits(100, 1.0F);
  EXPECT_TRUE(LogitRow::open(logits, scratch));
  logits[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(LogitRow::open(logits, scratch));
  logits[7] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(LogitRow::open(logits, scratch));
  std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
  EXPECT_FALSE(LogitRow::open(logits, scratch));
}

}  // namespace
}  // namespace graft
