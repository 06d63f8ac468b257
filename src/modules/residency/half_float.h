// Scalar conversions between f32 and the two 16-bit floating-point formats, IEEE binary16 (f16) and
// bfloat16 (bf16), rounding to nearest even. g++ 12 has no such type in C++. Pure functions, any
// thread. Kernels convert whole vectors with Highway; these serve packing, tails and tests.
#pragma once

#include <bit>
#include <cstdint>

namespace graft {

constexpr float kMaxF16 = 65504.0F;

// Exact: every f16 value, also subnormal or not finite, has an f32 twin.
inline float f32_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7F800000U | ((magnitude & 0x3FFU) << 13U));
  }
  if (magnitude < 0x400U) {  // zero or subnormal: a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign |
                              ((magnitude << 13U) + 0x38000000U));  // 112 more in the exponent
}

// Values beyond kMaxF16 become infinity once they round past it; NaN stays NaN.
inline std::uint16_t f16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U;
  } else if (magnitude >= 0x47800000U) {  // 2^16 and above
    half = 0x7C00U;
  } else if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is subnormal: adding 0.5 makes f32 addition round at 2^-24.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  } else {
    const std::uint32_t odd = (magnitude >> 13U) & 1U;
    half = (magnitude - 0x38000000U + 0xFFFU + odd) >> 13U;  // a carry moves into the exponent
  }
  return static_cast<std::uint16_t>(sign | half);
}

inline float f32_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

}  // namespace graft
