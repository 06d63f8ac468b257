#include "grafting/kernels/lora_tiles.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "modules/residency/row_codec.h"

// Fixed-size vectors only (tiles are arrays of vectors), and of those the ones worth their compile
// time. The plain x86-64 baseline is compiled in any case.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "grafting/kernels/lora_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));

// Rows of a tile whose sums are kept in registers at once, beside four vectors of factors.
constexpr int kGroupRows = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 4 : 2;

// Each of these types reads a row of factors as f32: load() gives the kLanes values from position i
// on, a multiple of kLanes, with the scale() of the block of kQ8BlockValues that they lie in.
struct NoScale {};

struct F32Row {
  using Scale = NoScale;
  static constexpr ResidentType kType = ResidentType::kF32;
  static constexpr std::int64_t kBlockBytes = 4 * kQ8BlockValues;
  static HWY_INLINE Scale scale(const std::byte* /*row*/, std::int64_t /*i*/) { return {}; }
  static HWY_INLINE V load(const std::byte* row, std::int64_t i, Scale /*scale*/) {
    return hn::LoadU(D(), reinterpret_cast<const float*>(row) + i);
  }
};

template <typename Half, ResidentType kHalfType>
struct HalfRow {
  using Scale = NoScale;
  static constexpr ResidentType kType = kHalfType;
  static constexpr std::int64_t kBlockBytes = 2 * kQ8BlockValues;
  static HWY_INLINE Scale scale(const std::byte* /*row*/, std::int64_t /*i*/) { return {}; }
  static HWY_INLINE V load(const std::byte* row, std::int64_t i, Scale /*scale*/) {
    const hn::Rebind<Half, D> d_half;
    return hn::PromoteTo(D(), hn::LoadU(d_half, reinterpret_cast<const Half*>(row) + i));
  }
};
using F16Row = HalfRow<hwy::float16_t, ResidentType::kF16>;
using BF16Row = HalfRow<hwy::bfloat16_t, ResidentType::kBF16>;

struct Q8Row {
  using Scale = V;
  static constexpr ResidentType kType = ResidentType::kQ8_0;
  static constexpr std::int64_t kBlockBytes = kQ8BlockBytes;
  static HWY_INLINE const std::byte* block(const std::byte* row, std::int64_t i) {
    return row + i / kQ8BlockValues * kBlockBytes;
  }
  // The scale is the upper half of the block's last four bytes, read as an f32's upper half.
  static HWY_INLINE Scale scale(const std::byte* row, std::int64_t i) {
    const hn::Rebind<std::uint32_t, D> d_bits;
    std::uint32_t bits = 0;
    hwy::CopyBytes<4>(block(row, i) + kBlockBytes - 4, &bits);
    return hn::BitCast(D(), hn::And(hn::Set(d_bits, bits), hn::Set(d_bits, 0xFFFF0000U)));
  }
  static HWY_INLINE V load(const std::byte* row, std::int64_t i, Scale scale) {
    const auto* steps = reinterpret_cast<const std::int8_t*>(block(row, i));
    const hn::Rebind<std::int8_t, D> d_steps;
    const hn::Rebind<std::int32_t, D> d_wide;
    const auto wide = hn::PromoteTo(d_wide, hn::LoadU(d_steps, steps + i % kQ8BlockValues));
    return hn::Mul(hn::ConvertTo(D(), wide), scale);
  }
};

// Bytes of n values of a row.
template <class Row>
constexpr std::int64_t bytes_of(std::int64_t n_values) {
  return n_values * Row::kBlockBytes / kQ8BlockValues;
}

// Factors come from memory in short pieces: rows of a few hundred bytes, one adapter after another.
// The processor's own prefetching loses them at each seam, so the loops ask for them ahead.
template <std::int64_t kBytes>
HWY_INLINE void prefetch(const std::byte* from) {
  constexpr std::int64_t kLineBytes = 64;
  for (std::int64_t offset = 0; offset < kBytes; offset += kLineBytes) {
    hwy::Prefetch(from + offset);
  }
}

// The sums over all lanes of four vectors, stored at `to`. One fixed order of additions, for each
// of the four alike.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_four_sums(const V* v, V scale, float* to) {
  for (int k = 0; k < 4; ++k) {
    hn::StoreU(hn::Mul(v[k], scale), D(), to + k);
  }
}
#else
HWY_INLINE hn::Vec<hn::Full128<float> > fold(hn::Full128<float> /*d*/,
                                             hn::Vec<hn::Full128<float> > v) {
  return v;
}
template <class DV>
HWY_INLINE hn::Vec<hn::Full128<float> > fold(DV /*d*/, hn::Vec<DV> v) {
  const hn::Half<DV> d_half;
  return fold(d_half, hn::Add(hn::LowerHalf(d_half, v), hn::UpperHalf(d_half, v)));
}

HWY_INLINE void store_four_sums(const V* v, V scale, float* to) {
  // A transposition of 4 x 4 within each 128-bit part, with the additions in between.
  const D d;
  const hn::Repartition<std::uint64_t, D> d_pair;
  const V sum01 = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const V sum23 = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto pair01 = hn::BitCast(d_pair, sum01);
  const auto pair23 = hn::BitCast(d_pair, sum23);
  const V low = hn::BitCast(d, hn::InterleaveLower(d_pair, pair01, pair23));
  const V high = hn::BitCast(d, hn::InterleaveUpper(d_pair, pair01, pair23));
  const V sums = hn::Mul(hn::Add(low, high), scale);
  const hn::Full128<float> d4;
  hn::StoreU(fold(d, sums), d4, to);
}
#endif

// The last n_in % kLanes values, from copies padded with zeros.
template <class Row, int kR>
HWY_NOINLINE void add_dot_tail(const ShrinkTile& tile, int r0, const std::byte* const* a,
                               std::int64_t begin, V (*acc)[kTileRanks]) {
  const D d;
  const std::int64_t n = tile.n_in - begin;
  HWY_ALIGN float a_values[kTileRanks][kLanes] = {};
  HWY_ALIGN float x_values[kLanes] = {};
  for (int k = 0; k < kTileRanks; ++k) {
    for (std::int64_t i = 0; i < n; ++i) {
      a_values[k][i] = decode_value(Row::kType, a[k], begin + i);
    }
  }
  for (int r = 0; r < kR; ++r) {
    std::copy_n(tile.x[static_cast<std::size_t>(r0 + r)] + begin, n, x_values);
    for (int k = 0; k < kTileRanks; ++k) {
      acc[r][k] = hn::MulAdd(hn::Load(d, a_values[k]), hn::Load(d, x_values), acc[r][k]);
    }
  }
}

// What this thread reads `ahead` rows after row k0.
HWY_INLINE const std::byte* rows_ahead(const ShrinkTile& tile, std::int64_t k0) {
  const std::int64_t k = k0 + tile.ahead;
  const std::int64_t n_left = tile.a.n_rows - k;
  return n_left > 0 ? tile.a.bytes + static_cast<std::size_t>(k) * tile.a.row_bytes
                    : tile.next + static_cast<std::size_t>(-n_left) * tile.a.row_bytes;
}

// The state of kTileRanks dot products with each of kR rows of x.
template <class Row, int kR>
struct Dots {
  const std::byte* a[kTileRanks];
  const float* x[kR];
  V acc[kR][kTileRanks];  // one vector accumulates each of them
  typename Row::Scale scale[kTileRanks];

  HWY_INLINE Dots(const ShrinkTile& tile, int r0, std::int64_t k0) {
    for (std::int64_t k = 0; k < kTileRanks; ++k) {
      // Behind the last row that row again: its sums land in the padding of t.
      const auto row = static_cast<std::size_t>(std::min(k0 + k, tile.a.n_rows - 1));
      a[k] = tile.a.bytes + row * tile.a.row_bytes;
    }
    for (int r = 0; r < kR; ++r) {
      x[r] = tile.x[static_cast<std::size_t>(r0 + r)];
      for (int k = 0; k < kTileRanks; ++k) acc[r][k] = hn::Zero(D());
    }
  }
  HWY_INLINE void enter_block(std::int64_t i) {
    for (int k = 0; k < kTileRanks; ++k) scale[k] = Row::scale(a[k], i);
  }
  HWY_INLINE void add(std::int64_t i) {
    V w[kTileRanks];
    for (int k = 0; k < kTileRanks; ++k) w[k] = Row::load(a[k], i, scale[k]);
    for (int r = 0; r < kR; ++r) {
      const V xv = hn::LoadU(D(), x[r] + i);
      for (int k = 0; k < kTileRanks; ++k) acc[r][k] = hn::MulAdd(w[k], xv, acc[r][k]);
    }
  }
};

template <class Row, int kR, bool kPrefetch>
HWY_INLINE void dots(const ShrinkTile& tile, int r0, std::int64_t k0) {
  Dots<Row, kR> dots(tile, r0, k0);
  const std::byte* ahead = kPrefetch ? rows_ahead(tile, k0) : nullptr;
  std::int64_t i = 0;
  for (; i + kQ8BlockValues <= tile.n_in; i += kQ8BlockValues) {
    if constexpr (kPrefetch) {
      prefetch<kTileRanks * Row::kBlockBytes>(ahead);
      ahead += kTileRanks * Row::kBlockBytes;
    }
    dots.enter_block(i);
    for (std::int64_t c = 0; c < kQ8BlockValues; c += kLanes) dots.add(i + c);
  }
  for (; i + kLanes <= tile.n_in; i += kLanes) {
    dots.enter_block(i);
    dots.add(i);
  }
  if (i < tile.n_in) {
    add_dot_tail<Row, kR>(tile, r0, dots.a, i, dots.acc);
  }
  for (int r = 0; r < kR; ++r) {
    store_four_sums(dots.acc[r], hn::Set(D(), tile.scale),
                    tile.t[static_cast<std::size_t>(r0 + r)] + k0);
  }
}

// Row groups from r on.
template <class Row, bool kPrefetch>
HWY_INLINE int dots_of_group(const ShrinkTile& tile, int r, std::int64_t k0) {
  const int n_left = tile.n_rows - r;
  if constexpr (kGroupRows == 4) {
    if (n_left >= 4) {
      dots<Row, 4, kPrefetch>(tile, r, k0);
      return 4;
    }
  }
  if (n_left >= 2) {
    dots<Row, 2, kPrefetch>(tile, r, k0);
    return 2;
  }
  dots<Row, 1, kPrefetch>(tile, r, k0);
  return 1;
}

template <class Row>
HWY_INLINE void shrink_rows(const ShrinkTile& tile) {
  for (std::int64_t k0 = 0; k0 < tile.a.n_rows; k0 += kTileRanks) {
    int r = tile.next != nullptr ? dots_of_group<Row, true>(tile, 0, k0) : 0;
    while (r < tile.n_rows) r += dots_of_group<Row, false>(tile, r, k0);
  }
}

void shrink(const ShrinkTile& tile) {
  switch (tile.a.type) {
    case ResidentType::kF32: return shrink_rows<F32Row>(tile);
    case ResidentType::kF16: return shrink_rows<F16Row>(tile);
    case ResidentType::kBF16: return shrink_rows<BF16Row>(tile);
    case ResidentType::kQ8_0: return shrink_rows<Q8Row>(tile);
  }
}

// What this thread reads `ahead` columns after column j, for k = 0.
template <class Row>
HWY_INLINE const std::byte* columns_ahead(const ExpandTile& tile, std::int64_t j) {
  const std::int64_t n_left = tile.j_end - j - tile.ahead;
  return n_left > 0 ? tile.b.bytes + bytes_of<Row>(j + tile.ahead)
                    : tile.next + bytes_of<Row>(-n_left);
}

// kR rows by kC vectors of y, from column j on. No block of q8_0 begins inside a vector, nor inside
// the tile unless j begins one.
template <class Row, int kR, int kC, bool kPrefetch>
// NOLINTNEXTLINE(readability-function-cognitive-complexity): one straight kernel
HWY_INLINE void add_outer(const ExpandTile& tile, int r0, std::int64_t j) {
  const D d;
  const float* t[kR];
  float* y[kR];
  V acc[kR][kC];
  for (int r = 0; r < kR; ++r) {
    t[r] = tile.t[static_cast<std::size_t>(r0 + r)];
    y[r] = tile.y[static_cast<std::size_t>(r0 + r)] + j;
    for (int c = 0; c < kC; ++c) acc[r][c] = hn::LoadU(d, y[r] + c * kLanes);
  }
  const std::byte* b = tile.b.bytes;
  const std::byte* ahead = kPrefetch ? columns_ahead<Row>(tile, j) : nullptr;
  for (std::int64_t k = 0; k < tile.b.n_rows; ++k, b += tile.b.row_bytes) {
    if constexpr (kPrefetch) {
      prefetch<bytes_of<Row>(kC * kLanes)>(ahead);
      ahead += tile.b.row_bytes;
    }
    V w[kC];
    typename Row::Scale scale = Row::scale(b, j);
    for (int c = 0; c < kC; ++c) {
      if (c > 0 && c * kLanes % kQ8BlockValues == 0) scale = Row::scale(b, j + c * kLanes);
      w[c] = Row::load(b, j + c * kLanes, scale);
    }
    for (int r = 0; r < kR; ++r) {
      const V tk = hn::Set(d, t[r][k]);
      for (int c = 0; c < kC; ++c) acc[r][c] = hn::MulAdd(tk, w[c], acc[r][c]);
    }
  }
  for (int c = 0; c < kC; ++c) {
    if (tile.bias != nullptr) {
      const V bias = hn::LoadU(d, tile.bias + j + c * kLanes);
      for (int r = 0; r < kR; ++r) {
        acc[r][c] = hn::MulAdd(hn::Set(d, tile.bias_scale), bias, acc[r][c]);
      }
    }
    for (int r = 0; r < kR; ++r) hn::StoreU(acc[r][c], d, y[r] + c * kLanes);
  }
}

template <class Row, int kC, bool kPrefetch>
HWY_INLINE int add_group(const ExpandTile& tile, int r, std::int64_t j) {
  const int n_left = tile.n_rows - r;
  if constexpr (kGroupRows == 4) {
    if (n_left >= 4) {
      add_outer<Row, 4, kC, kPrefetch>(tile, r, j);
      return 4;
    }
  }
  if (n_left >= 2) {
    add_outer<Row, 2, kC, kPrefetch>(tile, r, j);
    return 2;
  }
  add_outer<Row, 1, kC, kPrefetch>(tile, r, j);
  return 1;
}

template <class Row, int kC>
HWY_INLINE void add_columns(const ExpandTile& tile, std::int64_t j) {
  int r = tile.next != nullptr ? add_group<Row, kC, true>(tile, 0, j) : 0;
  while (r < tile.n_rows) r += add_group<Row, kC, false>(tile, r, j);
}

// Columns j .. j + n - 1, n < kLanes, through copies: the same vector operations per element.
HWY_NOINLINE void add_edge(const ExpandTile& tile, std::int64_t j, std::int64_t n) {
  const D d;
  HWY_ALIGN float y_values[kLanes] = {};
  HWY_ALIGN float b_values[kLanes] = {};
  for (std::size_t r = 0; r < static_cast<std::size_t>(tile.n_rows); ++r) {
    std::copy_n(tile.y[r] + j, n, y_values);
    V acc = hn::Load(d, y_values);
    const std::byte* b = tile.b.bytes;
    for (std::int64_t k = 0; k < tile.b.n_rows; ++k, b += tile.b.row_bytes) {
      for (std::int64_t c = 0; c < n; ++c) b_values[c] = decode_value(tile.b.type, b, j + c);
      acc = hn::MulAdd(hn::Set(d, tile.t[r][k]), hn::Load(d, b_values), acc);
    }
    if (tile.bias != nullptr) {
      std::copy_n(tile.bias + j, n, b_values);
      acc = hn::MulAdd(hn::Set(d, tile.bias_scale), hn::Load(d, b_values), acc);
    }
    hn::Store(acc, d, y_values);
    std::copy_n(y_values, n, tile.y[r] + j);
  }
}

// Vectors of y per row that are kept in registers. Such a tile is a part of a block of q8_0 or
// whole blocks, once the first one begins with a block.
constexpr int kTileVectors = 4;

template <class Row>
HWY_INLINE void expand_rows(const ExpandTile& tile) {
  std::int64_t j = tile.j_begin;
  // Full vectors start at multiples of kLanes, so that none crosses a block of q8_0.
  if (const std::int64_t ahead = (kLanes - j % kLanes) % kLanes; ahead > 0) {
    const std::int64_t n = std::min(ahead, tile.j_end - j);
    add_edge(tile, j, n);
    j += n;
  }
  for (; j % kQ8BlockValues != 0 && j + kLanes <= tile.j_end; j += kLanes) {
    add_columns<Row, 1>(tile, j);
  }
  for (; j + kTileVectors * kLanes <= tile.j_end; j += kTileVectors * kLanes) {
    add_columns<Row, kTileVectors>(tile, j);
  }
  for (; j + kLanes <= tile.j_end; j += kLanes) add_columns<Row, 1>(tile, j);
  if (j < tile.j_end) {
    add_edge(tile, j, tile.j_end - j);
  }
}

void expand(const ExpandTile& tile) {
  switch (tile.b.type) {
    case ResidentType::kF32: return expand_rows<F32Row>(tile);
    case ResidentType::kF16: return expand_rows<F16Row>(tile);
    case ResidentType::kBF16: return expand_rows<BF16Row>(tile);
    case ResidentType::kQ8_0: return expand_rows<Q8Row>(tile);
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace graft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace graft {

HWY_EXPORT(shrink);
HWY_EXPORT(expand);
HWY_EXPORT(target_name);

void shrink_tile(const ShrinkTile& tile) { HWY_DYNAMIC_DISPATCH(shrink)(tile); }
void expand_tile(const ExpandTile& tile) { HWY_DYNAMIC_DISPATCH(expand)(tile); }
const char* tile_target_name() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace graft
#endif
