#include "modules/residency/row_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "modules/residency/half_float.h"

namespace graft {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
}

std::uint16_t bf16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

// The least scale of a block with that largest value that clips nothing and is exact both as bf16
// and, for ggml's q8_0, as f16: an f16 whose last three bits are zero.
float q8_scale(float largest) {
  constexpr std::uint16_t kStep = 8;
  auto bits = static_cast<std::uint16_t>(f16_from_f32(largest / 127.0F) & ~(kStep - 1U));
  while (f32_from_f16(bits) * 127.5F <= largest && largest > 0.0F) {
    bits = static_cast<std::uint16_t>(bits + kStep);
  }
  return f32_from_f16(bits);
}

// One block: 32 int8, then the scale.
void encode_q8_block(std::span<const float> values, std::byte* block) {
  float largest = 0.0F;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  const float scale = q8_scale(largest);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float steps = scale > 0.0F ? std::nearbyint(values[i] / scale) : 0.0F;
    store(static_cast<std::int8_t>(std::clamp(steps, -127.0F, 127.0F)), block + i);
  }
  store(bf16_from_f32(scale), block + kQ8BlockValues);
}

}  // namespace

std::size_t resident_row_bytes(ResidentType type, std::int64_t n_values) {
  const auto n = static_cast<std::size_t>(n_values);
  switch (type) {
    case ResidentType::kF32: return n * 4;
    case ResidentType::kF16:
    case ResidentType::kBF16: return n * 2;
    case ResidentType::kQ8_0:
      GRAFT_CHECK(n_values % kQ8BlockValues == 0);
      return n / kQ8BlockValues * kQ8BlockBytes;
  }
  return 0;
}

void encode_row(ResidentType type, std::span<const float> values, std::byte* row) {
  switch (type) {
    case ResidentType::kF32: std::memcpy(row, values.data(), values.size_bytes()); return;
    case ResidentType::kF16:
      for (std::size_t i = 0; i < values.size(); ++i) store(f16_from_f32(values[i]), row + 2 * i);
      return;
    case ResidentType::kBF16:
      for (std::size_t i = 0; i < values.size(); ++i) store(bf16_from_f32(values[i]), row + 2 * i);
      return;
    case ResidentType::kQ8_0:
      for (std::size_t i = 0; i < values.size(); i += kQ8BlockValues) {
        encode_q8_block(values.subspan(i, kQ8BlockValues), row);
        row += kQ8BlockBytes;
      }
      return;
  }
}

float decode_value(ResidentType type, const std::byte* row, std::int64_t index) {
  const auto i = static_cast<std::size_t>(index);
  switch (type) {
    case ResidentType::kF32: return load<float>(row + 4 * i);
    case ResidentType::kF16: return f32_from_f16(load<std::uint16_t>(row + 2 * i));
    case ResidentType::kBF16: return f32_from_bf16(load<std::uint16_t>(row + 2 * i));
    case ResidentType::kQ8_0: {
      const std::byte* block = row + i / kQ8BlockValues * kQ8BlockBytes;
      return static_cast<float>(load<std::int8_t>(block + i % kQ8BlockValues)) *
             f32_from_bf16(load<std::uint16_t>(block + kQ8BlockValues));
    }
  }
  return 0.0F;
}

void decode_row(ResidentType type, const std::byte* row, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = decode_value(type, row, static_cast<std::int64_t>(i));
  }
}

}  // namespace graft
