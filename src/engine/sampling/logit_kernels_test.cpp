#include "engine/sampling/logit_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace graft {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const std::vector<std::size_t> kSizes = {1,  2,   15,   16,   17,    63,   64,
                                         65, 127, 1000, 4096, 49152, 50001};

std::vector<float> normal_logits(std::size_t n, unsigned seed, float deviation = 3.0F) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> logits(n);
  std::generate(logits.begin(), logits.end(), [&] { return normal(rng); });
  return logits;
}

TEST(LogitKernelsTest, BlockMaximaAndFirstIndex) {
  for (const std::size_t n : kSizes) {
    const std::vector<float> logits = normal_logits(n, static_cast<unsigned>(n));
    std::vector<float> maxima(n_logit_blocks(n));
    const LogitRange range = block_maxima(logits, maxima);
    const auto largest = std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(range.max, *largest);
    EXPECT_FALSE(range.has_nan);
    EXPECT_EQ(first_index_of(logits, range.max), largest - logits.begin());
    for (std::size_t block = 0; block < maxima.size(); ++block) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(block * kLogitBlock);
      const auto end = std::min(logits.end(), begin + kLogitBlock);
      EXPECT_EQ(maxima[block], *std::max_element(begin, end));
    }
  }
}

TEST(LogitKernelsTest, NanIsSeenAtEveryPosition) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{70}, std::size_t{200}}) {
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<float> logits(n, 1.0F);
      logits[at] = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> maxima(n_logit_blocks(n));
      EXPECT_TRUE(block_maxima(logits, maxima).has_nan) << n << " " << at;
      logits[at] = -kInf;
      EXPECT_FALSE(block_maxima(logits, maxima).has_nan);
    }
  }
}

TEST(LogitKernelsTest, TiesGoToTheLowestIndex) {
  std::vector<float> logits(1000, 0.0F);
  logits[333] = logits[334] = logits[900] = 2.0F;
  EXPECT_EQ(first_index_of(logits, 2.0F), 333);
}

TEST(LogitKernelsTest, SumExpAgreesWithDoubles) {
  for (const std::size_t n : kSizes) {
    for (const float temperature : {0.1F, 1.0F, 7.0F}) {
      std::vector<float> logits = normal_logits(n, static_cast<unsigned>(n) + 1, 10.0F);
      const float max = *std::max_element(logits.begin(), logits.end());
      if (n > 2) {
        const std::size_t at = logits[n / 2] == max ? n / 2 - 1 : n / 2;
        logits[at] = -kInf;
      }
      double expected = 0.0;
      for (const float logit : logits) {
        expected += std::exp((static_cast<double>(logit) - static_cast<double>(max)) /
                             static_cast<double>(temperature));
      }
      std::vector<float> sums(n_logit_blocks(n));
      std::vector<float> weights(n);
      const double sum = sum_exp(logits, max, 1.0F / temperature, sums, weights);
      EXPECT_EQ(sum_exp(logits, max, 1.0F / temperature, sums), sum);
      for (std::size_t i = 0; i < n; ++i) {
        const double exact = std::exp((static_cast<double>(logits[i]) - static_cast<double>(max)) /
                                      static_cast<double>(temperature));
        ASSERT_NEAR(weights[i], exact, 1e-30 + 2e-5 * exact);
      }
      const float threshold = n > 4 ? logits[n / 3] : max;
      Mass mass;
      for (std::size_t i = 0; i < n; ++i) {
        if (logits[i] >= threshold) {
          mass.weight += static_cast<double>(weights[i]);
          ++mass.n_tokens;
        }
      }
      const Mass found = mass_at_least(logits, weights, threshold);
      EXPECT_EQ(found.n_tokens, mass.n_tokens);
      EXPECT_NEAR(found.weight / mass.weight, 1.0, 3e-6);
      EXPECT_NEAR(sum / expected, 1.0, 3e-6) << n << " " << temperature;
      double blocks = 0.0;
      for (const float block : sums) {
        blocks += static_cast<double>(block);
      }
      EXPECT_EQ(blocks, sum);
    }
  }
}

TEST(LogitKernelsTest, CountsWhatIsAbove) {
  for (const std::size_t n : kSizes) {
    std::vector<float> logits = normal_logits(n, static_cast<unsigned>(n) + 7);
    logits[n / 2] = logits[0];  // an equal one is not above
    for (const float value : {logits[0], logits[n - 1], -kInf, kInf}) {
      const auto above = std::count_if(logits.begin(), logits.end(),
                                       [value](float logit) { return logit > value; });
      EXPECT_EQ(count_above(logits, value), static_cast<std::size_t>(above)) << n;
    }
  }
}

}  // namespace
}  // namespace graft
