#include "support/random_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace graft {

namespace {

FactorMatrix random_matrix(std::int64_t n_rows, std::int64_t n_cols, float deviation,
                           std::mt19937& random) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<std::size_t>(n_rows * n_cols));
  for (float& value : values) value = normal(random);
  FactorMatrix matrix{FactorType::kF32, n_rows, n_cols, {}};
  matrix.bytes.resize(values.size() * sizeof(float));
  std::memcpy(matrix.bytes.data(), values.data(), matrix.bytes.size());
  return matrix;
}

}  // namespace

std::shared_ptr<Adapter> make_random_adapter(const BaseModel& base,
                                             const RandomAdapterOptions& options) {
  std::mt19937 random(options.seed);
  auto adapter = std::make_shared<Adapter>();
  adapter->digest = "random-" + std::to_string(options.seed);
  adapter->architecture = base.architecture;
  for (std::int64_t layer = 0; layer < base.n_layers; ++layer) {
    for (const std::string& projection : options.projections) {
      const std::string name = "blk." + std::to_string(layer) + "." + projection + ".weight";
      const BaseTensor* tensor = base.find(name);
      if (tensor == nullptr) continue;
      LoraTerm term;
      term.site = {SiteOp::kMatMul, name};
      term.n_in = tensor->ne[0];
      term.n_out = tensor->ne[1];
      term.rank = options.rank;
      const float deviation = 1 / std::sqrt(static_cast<float>(term.n_in));
      term.a = random_matrix(term.rank, term.n_in, deviation, random);
      term.b = random_matrix(term.n_out, term.rank, options.strength, random);
      adapter->terms.push_back(std::move(term));
    }
  }
  return adapter;
}

std::shared_ptr<const ModuleVersion> make_random_module(const BaseModel& base,
                                                        const RandomAdapterOptions& options) {
  const std::shared_ptr<const Adapter> adapter = make_random_adapter(base, options);
  auto version = std::make_shared<ModuleVersion>();
  version->name = adapter->digest;
  auto resident = ResidentAdapter::pack(adapter, Precision::kF16);
  if (!resident) {
    ADD_FAILURE() << resident.error().message;
    std::abort();
  }
  version->resident = *resident;
  return version;
}

}  // namespace graft
