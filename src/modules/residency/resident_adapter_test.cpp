#include "modules/residency/resident_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "modules/residency/half_float.h"
#include "modules/residency/row_codec.h"

namespace graft {
namespace {

FactorMatrix matrix_of(FactorType type, std::int64_t n_rows, std::int64_t n_cols,
                       const std::vector<float>& values) {
  FactorMatrix matrix{.type = type, .n_rows = n_rows, .n_cols = n_cols, .bytes = {}};
  const ResidentType row_type = type == FactorType::kF32   ? ResidentType::kF32
                                : type == FactorType::kF16 ? ResidentType::kF16
                                                           : ResidentType::kBF16;
  matrix.bytes.resize(values.size() * bytes_per_value(type));
  encode_row(row_type, values, matrix.bytes.data());
  return matrix;
}

std::vector<float> random_values(std::int64_t n, float size, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-size, size);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = uniform(engine);
  return values;
}

LoraTerm make_term(FactorType type, std::int64_t n_in, std::int64_t n_out, std::int64_t rank,
                   std::int64_t n_experts = 1) {
  LoraTerm term;
  term.site = {n_experts > 1 ? SiteOp::kMatMulId : SiteOp::kMatMul, "blk.0.ffn_up.weight"};
  term.n_in = n_in;
  term.n_out = n_out;
  term.rank = rank;
  term.n_experts = n_experts;
  term.a = matrix_of(type, n_experts * rank, n_in, random_values(n_experts * rank * n_in, 1, 1));
  term.b = matrix_of(type, n_experts * n_out, rank, random_values(n_experts * rank * n_out, 1, 2));
  return term;
}

std::shared_ptr<Adapter> adapter_of(std::vector<LoraTerm> terms) {
  auto adapter = std::make_shared<Adapter>();
  adapter->digest = "d1";
  adapter->terms = std::move(terms);
  return adapter;
}

float source_value(const FactorMatrix& matrix, std::int64_t index) {
  const ResidentType type = matrix.type == FactorType::kF32   ? ResidentType::kF32
                            : matrix.type == FactorType::kF16 ? ResidentType::kF16
                                                              : ResidentType::kBF16;
  return decode_value(type, matrix.bytes.data(), index);
}

float packed_a(const ResidentTerm& term, std::int64_t row, std::int64_t i) {
  return decode_value(term.type_a, term.a + static_cast<std::size_t>(row) * term.row_bytes_a, i);
}

float packed_b(const ResidentTerm& term, std::int64_t row, std::int64_t j) {
  return decode_value(term.type_b, term.b + static_cast<std::size_t>(row) * term.row_bytes_b, j);
}

// Largest difference between the packed factors and the file's, experts and transposition included.
double largest_difference(const ResidentTerm& packed, const LoraTerm& term) {
  double worst = 0;
  for (std::int64_t row = 0; row < term.n_experts * term.rank; ++row) {
    for (std::int64_t i = 0; i < term.n_in; ++i) {
      const double want = source_value(term.a, row * term.n_in + i);
      worst = std::max(worst, std::fabs(packed_a(packed, row, i) - want));
    }
    const std::int64_t expert = row / term.rank;
    for (std::int64_t j = 0; j < term.n_out; ++j) {
      const std::int64_t source_row = expert * term.n_out + j;
      const double want = source_value(term.b, source_row * term.rank + row % term.rank);
      worst = std::max(worst, std::fabs(packed_b(packed, row, j) - want));
    }
  }
  return worst;
}

TEST(HalfFloat, EveryF16ValueSurvivesTheWayThroughF32) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const std::uint32_t exponent = (bits >> 10U) & 31U;
    const auto fraction = static_cast<float>(bits & 0x3FFU);
    const float value = f32_from_f16(half);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), fraction > 0);
      EXPECT_TRUE(std::isnan(value) || std::isinf(value));
      EXPECT_EQ(std::isnan(f32_from_f16(f16_from_f32(value))), fraction > 0);
      continue;
    }
    const float magnitude = exponent == 0
                                ? std::ldexp(fraction, -24)
                                : std::ldexp(1024.0F + fraction, static_cast<int>(exponent) - 25);
    EXPECT_EQ(value, (bits & 0x8000U) != 0 ? -magnitude : magnitude) << bits;
    EXPECT_EQ(f16_from_f32(value), half);
  }
}

TEST(HalfFloat, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits + 1 < 0x7C00U; ++bits) {
    const float low = f32_from_f16(static_cast<std::uint16_t>(bits));
    const float high = f32_from_f16(static_cast<std::uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    EXPECT_EQ(f16_from_f32(middle), even) << bits;
    EXPECT_EQ(f16_from_f32(std::nextafter(middle, 0.0F)), bits) << bits;
    EXPECT_EQ(f16_from_f32(std::nextafter(middle, 1e9F)), bits + 1) << bits;
  }
  EXPECT_EQ(f16_from_f32(65519.0F), 0x7BFFU);
  EXPECT_EQ(f16_from_f32(65520.0F), 0x7C00U);
  EXPECT_EQ(f16_from_f32(1e30F), 0x7C00U);
  EXPECT_EQ(f16_from_f32(-0.0F), 0x8000U);
}

TEST(ResidentAdapter, KeepsEveryFileTypeExactly) {
  for (const FactorType type : {FactorType::kF32, FactorType::kF16, FactorType::kBF16}) {
    for (const std::int64_t experts : {1, 3}) {
      const LoraTerm term = make_term(type, 33, 21, 5, experts);
      auto packed = ResidentAdapter::pack(adapter_of({term}), Precision::kFile);
      ASSERT_TRUE(packed);
      const ResidentTerm& resident = (*packed)->terms()[0];
      EXPECT_EQ(largest_difference(resident, term), 0);
      EXPECT_EQ((*packed)->packing_error(), 0);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(resident.a) % 64, 0U);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(resident.b) % 64, 0U);
    }
  }
}

TEST(ResidentAdapter, ShortensF32WhereEveryValueFits) {
  LoraTerm term = make_term(FactorType::kF32, 40, 24, 3);
  for (const float outlier : {65504.0F, 65505.0F, std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
    std::memcpy(term.b.bytes.data() + 4 * 7, &outlier, 4);
    auto packed = ResidentAdapter::pack(adapter_of({term}), Precision::kF16);
    ASSERT_TRUE(packed);
    const ResidentTerm& resident = (*packed)->terms()[0];
    EXPECT_EQ(resident.type_a, ResidentType::kF16);
    EXPECT_EQ(resident.type_b, outlier == 65504.0F ? ResidentType::kF16 : ResidentType::kF32);
  }
}

TEST(ResidentAdapter, RoundingToF16IsReported) {
  const LoraTerm term = make_term(FactorType::kF32, 40, 24, 3);
  auto packed = ResidentAdapter::pack(adapter_of({term}), Precision::kF16);
  ASSERT_TRUE(packed);
  // Values below 1 are rounded by at most 2^-12; each row's largest value is above 0.5 here.
  EXPECT_LE(largest_difference((*packed)->terms()[0], term), std::ldexp(1.0, -12));
  EXPECT_GT((*packed)->packing_error(), 0);
  EXPECT_LE((*packed)->packing_error(), std::ldexp(1.0, -11));
}

TEST(ResidentAdapter, HalfPrecisionFilesStayAsTheyAre) {
  for (const FactorType type : {FactorType::kF16, FactorType::kBF16}) {
    const LoraTerm term = make_term(type, 40, 24, 3);
    auto packed = ResidentAdapter::pack(adapter_of({term}), Precision::kF16);
    ASSERT_TRUE(packed);
    EXPECT_EQ(largest_difference((*packed)->terms()[0], term), 0);
    EXPECT_EQ((*packed)->packing_error(), 0);
  }
}

TEST(ResidentAdapter, QuantisesPerMatrix) {
  // 24 outputs are no multiple of 32: B falls back to f16, or to bf16 if the file has that.
  for (const FactorType type : {FactorType::kF32, FactorType::kF16, FactorType::kBF16}) {
    auto packed = ResidentAdapter::pack(adapter_of({make_term(type, 64, 24, 3)}), Precision::kQ8_0);
    ASSERT_TRUE(packed);
    const ResidentTerm& resident = (*packed)->terms()[0];
    EXPECT_EQ(resident.type_a, ResidentType::kQ8_0);
    EXPECT_EQ(resident.row_bytes_a, 68U);
    EXPECT_EQ(resident.type_b,
              type == FactorType::kBF16 ? ResidentType::kBF16 : ResidentType::kF16);
  }
}

TEST(ResidentAdapter, QuantisationErrorStaysNearHalfAStep) {
  const LoraTerm term = make_term(FactorType::kF32, 256, 96, 8);
  auto packed = ResidentAdapter::pack(adapter_of({term}), Precision::kQ8_0);
  ASSERT_TRUE(packed);
  const ResidentTerm& resident = (*packed)->terms()[0];
  EXPECT_EQ(resident.type_b, ResidentType::kQ8_0);
  // Half a step of 1/127, a scale of eight significant bits that is rounded up.
  const double half_step = 0.5 / 127 * (1 + std::ldexp(1.0, -7));
  EXPECT_LE(largest_difference(resident, term), half_step);
  EXPECT_GT((*packed)->packing_error(), 0.5 * half_step);
  EXPECT_LE((*packed)->packing_error(), 1.1 * half_step);
}

TEST(ResidentAdapter, QuantisationRefusesWhatItWouldDestroy) {
  LoraTerm tiny = make_term(FactorType::kF32, 64, 32, 2);
  tiny.a = matrix_of(FactorType::kF32, 2, 64, random_values(128, 1e-6F, 3));
  LoraTerm infinite = make_term(FactorType::kF32, 64, 32, 2);
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(infinite.a.bytes.data(), &infinity, 4);
  auto packed = ResidentAdapter::pack(adapter_of({tiny, infinite}), Precision::kQ8_0);
  ASSERT_TRUE(packed);
  EXPECT_EQ((*packed)->terms()[0].type_a, ResidentType::kF16);
  EXPECT_EQ((*packed)->terms()[1].type_a, ResidentType::kF32);
}

TEST(ResidentAdapter, ZeroFactorsStayZeroInEveryPrecision) {
  LoraTerm term = make_term(FactorType::kF32, 64, 32, 2);
  term.b = matrix_of(FactorType::kF32, 32, 2, std::vector<float>(64, 0.0F));
  for (const Precision precision : {Precision::kFile, Precision::kF16, Precision::kQ8_0}) {
    auto packed = ResidentAdapter::pack(adapter_of({term}), precision);
    ASSERT_TRUE(packed);
    for (std::int64_t j = 0; j < 32; ++j) EXPECT_EQ(packed_b((*packed)->terms()[0], 1, j), 0.0F);
  }
}

TEST(ResidentAdapter, ScaleOfABlockNeverClips) {
  // 1000 block maxima over five decades: the largest value must come back within half a step.
  for (int i = 0; i < 1000; ++i) {
    std::vector<float> values(32, 0.0F);
    values[5] = std::pow(10.0F, -3.0F + 0.005F * static_cast<float>(i));
    std::vector<std::byte> row(kQ8BlockBytes);
    encode_row(ResidentType::kQ8_0, values, row.data());
    EXPECT_NEAR(decode_value(ResidentType::kQ8_0, row.data(), 5), values[5], values[5] * 0.005);
  }
}

// The operations of a GPU take blocks with an f16 scale.
TEST(ResidentAdapter, ScaleOfABlockIsExactAsF16) {
  for (int i = 0; i < 1000; ++i) {
    const std::vector<float> values(32, std::pow(10.0F, -8.0F + 0.015F * static_cast<float>(i)));
    std::vector<std::byte> row(kQ8BlockBytes);
    encode_row(ResidentType::kQ8_0, values, row.data());
    std::uint16_t bits = 0;
    std::memcpy(&bits, row.data() + kQ8BlockValues, sizeof(bits));
    const float scale = f32_from_bf16(bits);
    EXPECT_EQ(f32_from_f16(f16_from_f32(scale)), scale) << values[0];
  }
}

TEST(ResidentAdapter, FindsTermsBySite) {
  LoraTerm first = make_term(FactorType::kF16, 32, 32, 2);
  LoraTerm other = make_term(FactorType::kF16, 32, 32, 9);
  other.site.tensor = "blk.1.ffn_up.weight";
  LoraTerm second = make_term(FactorType::kF16, 32, 16, 4);
  second.out_offset = 16;
  second.bias = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  auto packed = ResidentAdapter::pack(adapter_of({first, other, second}), Precision::kFile);
  ASSERT_TRUE(packed);
  const ResidentAdapter& resident = **packed;
  EXPECT_EQ(resident.digest(), "d1");
  EXPECT_EQ(resident.max_rank(), 9);
  const auto* at = resident.terms_at(first.site);
  ASSERT_NE(at, nullptr);
  ASSERT_EQ(at->size(), 2U);
  EXPECT_EQ((*at)[0], &resident.terms()[0]);
  EXPECT_EQ((*at)[1], &resident.terms()[2]);
  EXPECT_EQ((*at)[1]->bias[15], 16.0F);
  EXPECT_EQ(resident.terms_at({SiteOp::kGetRows, first.site.tensor}), nullptr);
}

TEST(ResidentAdapter, RefusesFactorsThatContradictTheirShape) {
  const LoraTerm good = make_term(FactorType::kF16, 32, 32, 2);
  const auto refuses = [](LoraTerm term) {
    auto packed = ResidentAdapter::pack(adapter_of({std::move(term)}), Precision::kFile);
    return !packed && packed.error().code == ErrorCode::kDataCorrupt;
  };
  LoraTerm term = good;
  term.a.bytes.pop_back();
  EXPECT_TRUE(refuses(term));
  term = good;
  term.rank = 0;
  EXPECT_TRUE(refuses(term));
  term = good;
  term.n_experts = std::int64_t{1} << 40;
  EXPECT_TRUE(refuses(term));
  term = good;
  term.b.n_rows = 31;
  EXPECT_TRUE(refuses(term));
  term = good;
  term.bias = {1.0F};
  EXPECT_TRUE(refuses(term));
  term = good;
  term.out_offset = -1;
  EXPECT_TRUE(refuses(term));
  EXPECT_FALSE(refuses(good));
}

TEST(ResidentAdapter, ArenasOf64AdaptersAreWithinATenthOfTheirFactors) {
  std::uint64_t arena_bytes = 0;
  std::uint64_t factor_bytes = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    std::vector<LoraTerm> terms;
    for (const std::int64_t n_out : {576, 192, 1536}) {
      terms.push_back(make_term(FactorType::kF16, 576, n_out, 1 + i % 16));
    }
    auto adapter = adapter_of(std::move(terms));
    factor_bytes += adapter->factor_bytes();
    auto packed = ResidentAdapter::pack(adapter, Precision::kFile);
    ASSERT_TRUE(packed);
    arena_bytes += (*packed)->arena_bytes();
  }
  EXPECT_LE(static_cast<double>(arena_bytes), 1.1 * static_cast<double>(factor_bytes));
}

}  // namespace
}  // namespace graft
