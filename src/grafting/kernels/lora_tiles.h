// The two inner loops of the low-rank kernel, for up to kTileRows rows at a time; compiled for each
// vector instruction set and chosen at run time. Called by lora_kernel.cpp only, on any thread;
// they write through the given pointers alone. A row's result does not depend on the other rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "modules/residency/resident_adapter.h"

namespace graft {

constexpr int kTileRows = 8;
constexpr std::int64_t kTileRanks = 4;

// Rows of A or B as they lie in the arena.
struct FactorRows {
  ResidentType type = ResidentType::kF32;
  const std::byte* bytes = nullptr;
  std::size_t row_bytes = 0;
  std::int64_t n_rows = 0;
};

// Factors are fetched `ahead` rows of A or columns of B early; behind the tile's last one begins
// `next`, what this thread reads after the tile. Null when the tile's factors are in cache already.
// Only a hint: it may be wrong, even no address at all.

// t[row][k] = scale * dot(a[k], x[row]) for all rows k of `a`.
struct ShrinkTile {
  FactorRows a;
  const std::byte* next = nullptr;
  std::int64_t ahead = 0;
  std::int64_t n_in = 0;
  float scale = 1.0F;
  int n_rows = 0;
  std::array<const float*, kTileRows> x{};
  std::array<float*, kTileRows> t{};  // room for a.n_rows rounded up to kTileRanks floats
};

// y[row][j] += sum over k of t[row][k] * b[k][j], then + bias_scale * bias[j]; j_begin <= j <
// j_end.
struct ExpandTile {
  FactorRows b;
  const std::byte* next = nullptr;
  std::int64_t ahead = 0;
  std::int64_t j_begin = 0;
  std::int64_t j_end = 0;
  const float* bias = nullptr;
  float bias_scale = 1.0F;
  int n_rows = 0;
  std::array<const float*, kTileRows> t{};
  std::array<float*, kTileRows> y{};  // at j = 0
};

void shrink_tile(const ShrinkTile& tile);
void expand_tile(const ExpandTile& tile);

// For tests: the instruction set in use, e.g. "AVX3".
const char* tile_target_name();

}  // namespace graft
