// Norms against the product that they avoid, and the distances of logits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cli/site_norms.h"
#include "cli/statistics.h"

namespace graft::cli {
namespace {

FactorMatrix random_matrix(std::int64_t n_rows, std::int64_t n_cols, std::mt19937& random) {
  FactorMatrix matrix{FactorType::kF32, n_rows, n_cols, {}};
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(n_rows * n_cols));
  for (float& value : values) value = normal(random);
  matrix.bytes.resize(values.size() * 4);
  std::memcpy(matrix.bytes.data(), values.data(), matrix.bytes.size());
  return matrix;
}

double at(const FactorMatrix& matrix, std::int64_t row, std::int64_t column) {
  float value = 0;
  std::memcpy(&value, matrix.bytes.data() + 4 * (row * matrix.n_cols + column), 4);
  return static_cast<double>(value);
}

LoraTerm random_term(SiteOp op, std::int64_t n_experts) {
  std::mt19937 random(7);
  LoraTerm term;
  term.site = {op, "blk.0.x.weight"};
  term.n_in = 6;
  term.n_out = 5;
  term.rank = 3;
  term.n_experts = n_experts;
  term.scale = -2.0F;
  term.a = op == SiteOp::kGetRows ? random_matrix(6, 3, random)
                                  : random_matrix(n_experts * 3, 6, random);
  term.b = random_matrix(n_experts * 5, 3, random);
  return term;
}

double product_norm(const LoraTerm& term) {
  double sum = 0;
  for (std::int64_t e = 0; e < term.n_experts; ++e) {
    for (std::int64_t out = 0; out < term.n_out; ++out) {
      for (std::int64_t in = 0; in < term.n_in; ++in) {
        double value = 0;
        for (std::int64_t r = 0; r < term.rank; ++r) {
          value += at(term.b, e * term.n_out + out, r) * (term.site.op == SiteOp::kGetRows
                                                              ? at(term.a, in, r)
                                                              : at(term.a, e * term.rank + r, in));
        }
        sum += value * value;
      }
    }
  }
  return std::fabs(static_cast<double>(term.scale)) * std::sqrt(sum);
}

TEST(SiteNorms, EqualTheNormOfTheProduct) {
  for (const auto& [op, n_experts] :
       {std::pair{SiteOp::kMatMul, 1}, std::pair{SiteOp::kMatMulId, 4},
        std::pair{SiteOp::kGetRows, 1}}) {
    Adapter adapter;
    adapter.terms.push_back(random_term(op, n_experts));
    const auto norms = site_norms(adapter);
    ASSERT_EQ(norms.size(), 1U);
    EXPECT_NEAR(norms[0].update, product_norm(adapter.terms[0]), 1e-6 * norms[0].update);
    EXPECT_GT(norms[0].a, 0);
    EXPECT_TRUE(explain_no_effect(norms, 1).empty());
  }
}

TEST(SiteNorms, ExplainWhyNothingHappens) {
  Adapter adapter;
  adapter.terms.push_back(random_term(SiteOp::kMatMul, 1));
  EXPECT_EQ(explain_no_effect(site_norms(adapter), 0).size(), 1U);
  std::fill(adapter.terms[0].b.bytes.begin(), adapter.terms[0].b.bytes.end(), std::byte{0});
  auto reasons = explain_no_effect(site_norms(adapter), 1);
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_NE(reasons[0].find("B is all zeros at every site"), std::string::npos) << reasons[0];
  adapter.terms.push_back(random_term(SiteOp::kMatMul, 1));
  adapter.terms[1].scale = 0;
  reasons = explain_no_effect(site_norms(adapter), 1);
  ASSERT_EQ(reasons.size(), 2U);
  EXPECT_NE(reasons[0].find("1 of 2 sites"), std::string::npos) << reasons[0];
}

TEST(Statistics, Quantiles) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({3}, 0.99), 3);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(quantile({1, 2}, 1), 2);
}

TEST(Statistics, DistancesOfLogits) {
  const std::vector<float> a = {0, std::log(3.0F)};
  const std::vector<float> b = {std::log(3.0F), 0};
  const LogitDistance same = logit_distance(a, a);
  EXPECT_TRUE(same.bit_equal && same.same_top);
  EXPECT_EQ(same.max_abs, 0);
  EXPECT_EQ(same.kl, 0);
  const LogitDistance swapped = logit_distance(a, b);
  EXPECT_FALSE(swapped.bit_equal || swapped.same_top);
  EXPECT_NEAR(swapped.max_abs, std::log(3.0), 1e-6);
  // p = (1/4, 3/4), q = (3/4, 1/4): KL = 1/2 ln 3.
  EXPECT_NEAR(swapped.kl, 0.5 * std::log(3.0), 1e-6);
}

}  // namespace
}  // namespace graft::cli
