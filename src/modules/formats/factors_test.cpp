#include "modules/formats/factors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "modules/formats/format_test_support.h"

namespace graft {
namespace {

using format_test::append;
using format_test::append_value;
using format_test::Bytes;
using format_test::counting_floats;
using format_test::floats_as_bytes;

FactorMatrix counting(std::int64_t n_rows, std::int64_t n_cols) {
  const Bytes bytes = counting_floats(n_rows * n_cols);
  return make_factor(FactorType::kF32, n_rows, n_cols, bytes, "m").value();
}

TEST(Factors, RowOrderOfInterleavedRope) {
  // Two heads of size 4: new row 2b + a is old row a * 2 + b of the same head.
  EXPECT_EQ(interleaved_rope_order(8, 2), (std::vector<std::int64_t>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(interleaved_rope_order(6, 1), (std::vector<std::int64_t>{0, 3, 1, 4, 2, 5}));
}

TEST(Factors, SlicesTransposesAndPermutes) {
  const FactorMatrix m = counting(3, 2);  // {{0, 1}, {2, 3}, {4, 5}}
  EXPECT_EQ(to_floats(slice_rows(m, 1, 2)), (std::vector<float>{2, 3, 4, 5}));
  const FactorMatrix t = transpose(m);
  EXPECT_EQ(t.n_rows, 2);
  EXPECT_EQ(t.n_cols, 3);
  EXPECT_EQ(to_floats(t), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(to_floats(permute_rows(m, {2, 0, 1})), (std::vector<float>{4, 5, 0, 1, 2, 3}));
  EXPECT_EQ(to_floats(scale_to_f32(m, 2)), (std::vector<float>{0, 2, 4, 6, 8, 10}));
}

TEST(Factors, ValuesThatAreNotFiniteAreNamed) {
  const auto refused = [](FactorType type, const Bytes& bytes) {
    const auto n_cols = static_cast<std::int64_t>(bytes.size() / bytes_per_value(type));
    const auto result = make_factor(type, 1, n_cols, bytes, "the.tensor");
    return !result && result.error().message.find("'the.tensor'") != std::string::npos;
  };
  EXPECT_TRUE(refused(FactorType::kF32, floats_as_bytes({1, std::nanf("")})));
  EXPECT_TRUE(refused(FactorType::kF32, floats_as_bytes({-HUGE_VALF})));
  for (const std::uint16_t bits : std::vector<std::uint16_t>{0x7C00, 0xFC00, 0x7E01}) {
    Bytes bytes;
    append_value(bytes, bits);
    EXPECT_TRUE(refused(FactorType::kF16, bytes)) << bits;
  }
  for (const std::uint16_t bits : std::vector<std::uint16_t>{0x7F80, 0xFF80, 0x7FC1}) {
    Bytes bytes;
    append_value(bytes, bits);
    EXPECT_TRUE(refused(FactorType::kBF16, bytes)) << bits;
  }
}

TEST(Factors, LargeBf16StaysBf16) {
  Bytes bytes;
  append_value<std::uint16_t>(bytes, 0x7F00);  // 1.7e38, far beyond f16
  append_value<std::uint16_t>(bytes, 0x3F80);  // 1
  const auto result = make_factor(FactorType::kBF16, 1, 2, bytes, "m");
  ASSERT_TRUE(result);
  EXPECT_EQ(static_cast<int>(result->type), static_cast<int>(FactorType::kBF16));
  EXPECT_EQ(result->bytes, bytes);
  EXPECT_EQ(to_floats(*result)[1], 1.0F);
  EXPECT_GT(to_floats(*result)[0], 1e38F);
}

TEST(Factors, Q8BlocksAreScaleTimesQuantum) {
  Bytes block;
  append_value<std::uint16_t>(block, 0x3800);  // 0.5
  for (int i = 0; i < 32; ++i) append_value(block, static_cast<std::int8_t>(i == 0 ? -128 : i));
  const auto result = make_factor_from_q8_0(1, 32, block, "m");
  ASSERT_TRUE(result);
  EXPECT_EQ(to_floats(*result)[0], -64.0F);
  EXPECT_EQ(to_floats(*result)[31], 15.5F);
  block[1] = std::byte{0x7C};  // infinite scale
  block[0] = std::byte{0};
  EXPECT_FALSE(make_factor_from_q8_0(1, 32, block, "m"));
}

}  // namespace
}  // namespace graft
