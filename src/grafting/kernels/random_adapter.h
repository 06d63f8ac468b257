// Adapters with random factors in kernel layout, for tests and benchmarks of the kernel.
// Any thread; the result is shared and immutable.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "modules/adapter.h"
#include "modules/residency/half_float.h"
#include "modules/residency/resident_adapter.h"

namespace graft {

struct RandomTerm {
  std::int64_t n_in = 32;
  std::int64_t n_out = 32;
  std::int64_t rank = 4;
  std::int64_t out_offset = 0;
  std::int64_t n_experts = 1;
  SiteOp op = SiteOp::kMatMul;
  bool bias = false;
  std::string tensor = "blk.0.attn_q.weight";
};

class RandomFactors {
 public:
  explicit RandomFactors(std::uint32_t seed) : engine_(seed) {}

  float value() { return std::uniform_real_distribution<float>(-1.0F, 1.0F)(engine_); }

  FactorMatrix matrix(FactorType type, std::int64_t n_rows, std::int64_t n_cols) {
    FactorMatrix out{.type = type, .n_rows = n_rows, .n_cols = n_cols, .bytes = {}};
    const auto n = static_cast<std::size_t>(n_rows * n_cols);
    const std::size_t width = bytes_per_value(type);
    out.bytes.resize(n * width);
    for (std::size_t i = 0; i < n; ++i) {
      const float v = value();
      const std::uint16_t half =
          type == FactorType::kF16
              ? f16_from_f32(v)
              : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16U);
      std::memcpy(out.bytes.data() + i * width,
                  type == FactorType::kF32 ? static_cast<const void*>(&v) : &half, width);
    }
    return out;
  }

  LoraTerm term(FactorType type, const RandomTerm& shape) {
    LoraTerm out;
    out.site = {shape.op, shape.tensor};
    out.n_in = shape.n_in;
    out.n_out = shape.n_out;
    out.out_offset = shape.out_offset;
    out.rank = shape.rank;
    out.n_experts = shape.n_experts;
    out.scale = 0.5F + 0.25F * value();
    out.a = shape.op == SiteOp::kGetRows ? matrix(type, shape.n_in, shape.rank)
                                         : matrix(type, shape.n_experts * shape.rank, shape.n_in);
    out.b = matrix(type, shape.n_experts * shape.n_out, shape.rank);
    if (shape.bias) {
      out.bias.resize(static_cast<std::size_t>(shape.n_out));
      for (float& v : out.bias) v = value();
    }
    return out;
  }

 private:
  std::mt19937 engine_;
};

// `type` kQ8_0 quantises f32 factors; the others are packed as they are.
inline std::shared_ptr<const ResidentAdapter> random_adapter(ResidentType type,
                                                             const std::vector<RandomTerm>& shapes,
                                                             std::uint32_t seed) {
  FactorType file_type = FactorType::kF32;
  if (type == ResidentType::kF16) file_type = FactorType::kF16;
  if (type == ResidentType::kBF16) file_type = FactorType::kBF16;
  RandomFactors factors(seed);
  auto adapter = std::make_shared<Adapter>();
  for (const RandomTerm& shape : shapes) {
    adapter->terms.push_back(factors.term(file_type, shape));
  }
  const Precision precision = type == ResidentType::kQ8_0 ? Precision::kQ8_0 : Precision::kFile;
  return ResidentAdapter::pack(std::move(adapter), precision).value();
}

}  // namespace graft
