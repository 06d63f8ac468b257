#include "modules/formats/factors.h"

#include <cstring>

#include "base/check.h"
#include "modules/residency/half_float.h"

namespace graft {
namespace {

constexpr std::int64_t kBlockValues = 32;  // of Q8_0
constexpr std::size_t kBlockBytes = 34;

std::size_t row_bytes(const FactorMatrix& matrix) {
  return static_cast<std::size_t>(matrix.n_cols) * bytes_per_value(matrix.type);
}

// All exponent bits set: infinity or not a number.
bool is_finite_f32(std::uint32_t bits) { return (bits & 0x7F800000U) != 0x7F800000U; }
bool is_finite_f16(std::uint16_t bits) { return (bits & 0x7C00U) != 0x7C00U; }
bool is_finite_bf16(std::uint16_t bits) { return (bits & 0x7F80U) != 0x7F80U; }

template <typename Bits>
bool all_finite(std::span<const std::byte> bytes, bool (*is_finite)(Bits)) {
  for (std::size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
    Bits bits{};
    std::memcpy(&bits, bytes.data() + i, sizeof(Bits));
    if (!is_finite(bits)) return false;
  }
  return true;
}

bool all_finite(FactorType type, std::span<const std::byte> bytes) {
  switch (type) {
    case FactorType::kF32: return all_finite<std::uint32_t>(bytes, is_finite_f32);
    case FactorType::kF16: return all_finite<std::uint16_t>(bytes, is_finite_f16);
    case FactorType::kBF16: return all_finite<std::uint16_t>(bytes, is_finite_bf16);
  }
  return false;
}

Error not_finite(const std::string& name) {
  return data_corrupt("tensor '" + name + "' holds values that are not finite (NaN or infinity)");
}

FactorMatrix empty_like(const FactorMatrix& matrix, std::int64_t n_rows, std::int64_t n_cols) {
  FactorMatrix result;
  result.type = matrix.type;
  result.n_rows = n_rows;
  result.n_cols = n_cols;
  result.bytes.resize(static_cast<std::size_t>(n_rows) * row_bytes(result));
  return result;
}

void store_floats(FactorMatrix& matrix, const std::vector<float>& values) {
  matrix.bytes.resize(values.size() * sizeof(float));
  std::memcpy(matrix.bytes.data(), values.data(), matrix.bytes.size());
}

}  // namespace

Result<FactorMatrix> make_factor(FactorType type, std::int64_t n_rows, std::int64_t n_cols,
                                 std::span<const std::byte> bytes, const std::string& name) {
  FactorMatrix matrix;
  matrix.type = type;
  matrix.n_rows = n_rows;
  matrix.n_cols = n_cols;
  GRAFT_CHECK(bytes.size() == static_cast<std::size_t>(n_rows) * row_bytes(matrix));
  if (!all_finite(type, bytes)) return not_finite(name);
  matrix.bytes.assign(bytes.begin(), bytes.end());
  return matrix;
}

Result<FactorMatrix> make_factor_from_q8_0(std::int64_t n_rows, std::int64_t n_cols,
                                           std::span<const std::byte> bytes,
                                           const std::string& name) {
  const std::int64_t n_blocks = n_rows * (n_cols / kBlockValues);
  GRAFT_CHECK(n_cols % kBlockValues == 0 &&
              bytes.size() == static_cast<std::size_t>(n_blocks) * kBlockBytes);
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(n_rows * n_cols));
  for (std::size_t block = 0; block < bytes.size(); block += kBlockBytes) {
    std::uint16_t scale_bits = 0;
    std::memcpy(&scale_bits, bytes.data() + block, sizeof(scale_bits));
    if (!is_finite_f16(scale_bits)) return not_finite(name);
    const float scale = f32_from_f16(scale_bits);
    for (std::size_t i = sizeof(scale_bits); i < kBlockBytes; ++i) {
      const auto quantum =
          static_cast<std::int8_t>(std::to_integer<std::uint8_t>(bytes[block + i]));
      values.push_back(scale * static_cast<float>(quantum));
    }
  }
  FactorMatrix matrix;
  matrix.n_rows = n_rows;
  matrix.n_cols = n_cols;
  store_floats(matrix, values);
  return matrix;
}

FactorMatrix slice_rows(const FactorMatrix& matrix, std::int64_t begin, std::int64_t n_rows) {
  GRAFT_CHECK(begin >= 0 && n_rows >= 0 && begin + n_rows <= matrix.n_rows);
  FactorMatrix result = empty_like(matrix, n_rows, matrix.n_cols);
  std::memcpy(result.bytes.data(),
              matrix.bytes.data() + static_cast<std::size_t>(begin) * row_bytes(matrix),
              result.bytes.size());
  return result;
}

FactorMatrix transpose(const FactorMatrix& matrix) {
  FactorMatrix result = empty_like(matrix, matrix.n_cols, matrix.n_rows);
  const std::size_t n_bytes = bytes_per_value(matrix.type);
  const auto n_rows = static_cast<std::size_t>(matrix.n_rows);
  const auto n_cols = static_cast<std::size_t>(matrix.n_cols);
  for (std::size_t row = 0; row < n_rows; ++row) {
    for (std::size_t col = 0; col < n_cols; ++col) {
      std::memcpy(result.bytes.data() + (col * n_rows + row) * n_bytes,
                  matrix.bytes.data() + (row * n_cols + col) * n_bytes, n_bytes);
    }
  }
  return result;
}

std::vector<std::int64_t> interleaved_rope_order(std::int64_t n_rows, std::int64_t n_heads) {
  GRAFT_CHECK(n_heads > 0 && n_rows % (2 * n_heads) == 0);
  const std::int64_t half = n_rows / n_heads / 2;
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(n_rows));
  for (std::int64_t head = 0; head < n_heads; ++head) {
    for (std::int64_t b = 0; b < half; ++b) {
      for (std::int64_t a = 0; a < 2; ++a) order.push_back(head * 2 * half + a * half + b);
    }
  }
  return order;
}

FactorMatrix permute_rows(const FactorMatrix& matrix, const std::vector<std::int64_t>& order) {
  FactorMatrix result = empty_like(matrix, static_cast<std::int64_t>(order.size()), matrix.n_cols);
  const std::size_t n_bytes = row_bytes(matrix);
  for (std::size_t row = 0; row < order.size(); ++row) {
    GRAFT_CHECK(order[row] >= 0 && order[row] < matrix.n_rows);
    std::memcpy(result.bytes.data() + row * n_bytes,
                matrix.bytes.data() + static_cast<std::size_t>(order[row]) * n_bytes, n_bytes);
  }
  return result;
}

std::vector<float> to_floats(const FactorMatrix& matrix) {
  const auto n_values = static_cast<std::size_t>(matrix.n_rows * matrix.n_cols);
  std::vector<float> values(n_values);
  if (matrix.type == FactorType::kF32) {
    std::memcpy(values.data(), matrix.bytes.data(), n_values * sizeof(float));
    return values;
  }
  for (std::size_t i = 0; i < n_values; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, matrix.bytes.data() + i * sizeof(bits), sizeof(bits));
    values[i] = matrix.type == FactorType::kF16 ? f32_from_f16(bits) : f32_from_bf16(bits);
  }
  return values;
}

FactorMatrix scale_to_f32(const FactorMatrix& matrix, float factor) {
  std::vector<float> values = to_floats(matrix);
  for (float& value : values) value *= factor;
  FactorMatrix result;
  result.n_rows = matrix.n_rows;
  result.n_cols = matrix.n_cols;
  store_floats(result, values);
  return result;
}

}  // namespace graft
