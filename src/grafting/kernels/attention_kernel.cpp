#include "grafting/kernels/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "grafting/kernels/attention_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include <hwy/highway.h>

#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using V = hn::Vec<F32>;
constexpr int kMaxTogether = 4;  // query heads that share a read of K and V

// The part of a block that a query sees, in lanes.
struct LaneRange {
  int begin = 0;
  int end = 0;
  friend bool operator==(LaneRange a, LaneRange b) { return a.begin == b.begin && a.end == b.end; }
};

// Cells are read once and lie a whole row of heads apart; the processor does not guess that well.
constexpr std::int32_t kFetchAhead = 24;

void fetch_row(const CacheView& view, std::int32_t cell, int n) {
  const char* source = view.base + static_cast<std::size_t>(cell) * view.cell_stride;
  const std::ptrdiff_t bytes =
      static_cast<std::ptrdiff_t>(n) * (view.type == CacheType::kF32 ? 4 : 2);
  for (std::ptrdiff_t i = 0; i < bytes; i += 64) hwy::Prefetch(source + i);
}

void load_row(const CacheView& view, std::int32_t cell, int n, float* target) {
  const char* source = view.base + static_cast<std::size_t>(cell) * view.cell_stride;
  if (view.type == CacheType::kOther) {
    view.dequantize(source, target, n);
    return;
  }
  const F32 d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  if (view.type == CacheType::kF32) {
    const auto* values = reinterpret_cast<const float*>(source);
    for (int i = 0; i < n; i += lanes) hn::Store(hn::LoadU(d, values + i), d, target + i);
    return;
  }
  const hn::Rebind<hwy::float16_t, F32> d16;
  const auto* values = reinterpret_cast<const hwy::float16_t*>(source);
  for (int i = 0; i < n; i += lanes) {
    hn::Store(hn::PromoteTo(d, hn::LoadU(d16, values + i)), d, target + i);
  }
}

// Sums each of four vectors to one value, in the order given by the vector width alone.
template <class D, class VD>
HWY_INLINE void store_sums(D d, VD a, VD b, VD c, VD e, float* target) {
#if HWY_TARGET == HWY_SCALAR
  hn::Store(a, d, target);
  hn::Store(b, d, target + 1);
  hn::Store(c, d, target + 2);
  hn::Store(e, d, target + 3);
#else
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const hn::Repartition<double, D> dd;
  const auto low = hn::InterleaveLower(dd, hn::BitCast(dd, ab), hn::BitCast(dd, ce));
  const auto high = hn::InterleaveUpper(dd, hn::BitCast(dd, ab), hn::BitCast(dd, ce));
  auto sums = hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
  if constexpr (MaxLanes(D()) == 16) {
    const hn::Half<D> d8;
    const auto halves = hn::Add(hn::LowerHalf(d8, sums), hn::UpperHalf(d8, sums));
    const hn::Half<decltype(d8)> d4;
    hn::StoreU(hn::Add(hn::LowerHalf(d4, halves), hn::UpperHalf(d4, halves)), d4, target);
  } else if constexpr (MaxLanes(D()) == 8) {
    const hn::Half<D> d4;
    hn::StoreU(hn::Add(hn::LowerHalf(d4, sums), hn::UpperHalf(d4, sums)), d4, target);
  } else {
    hn::StoreU(sums, d, target);
  }
#endif
}

// scores[j][lane] = q_j . k_lane for kQueries query heads, lanes in groups of four from
// range.begin.
template <int kQueries>
void compute_scores(const AttentionQuery* const* queries, const float* keys, int d_k,
                    LaneRange range, float (*scores)[kAttentionBlock]) {
  const F32 d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int cell = range.begin & ~3; cell < range.end; cell += 4) {
    const std::ptrdiff_t row = d_k;
    const float* k = keys + cell * row;
    V sums[kQueries][4];
    for (int j = 0; j < kQueries; ++j) {
      for (int i = 0; i < 4; ++i) sums[j][i] = hn::Zero(d);
    }
    for (int c = 0; c < d_k; c += lanes) {
      const V k0 = hn::Load(d, k + c);
      const V k1 = hn::Load(d, k + row + c);
      const V k2 = hn::Load(d, k + 2 * row + c);
      const V k3 = hn::Load(d, k + 3 * row + c);
      for (int j = 0; j < kQueries; ++j) {
        const V q = hn::LoadU(d, queries[j]->q + c);
        sums[j][0] = hn::MulAdd(q, k0, sums[j][0]);
        sums[j][1] = hn::MulAdd(q, k1, sums[j][1]);
        sums[j][2] = hn::MulAdd(q, k2, sums[j][2]);
        sums[j][3] = hn::MulAdd(q, k3, sums[j][3]);
      }
    }
    for (int j = 0; j < kQueries; ++j) {
      store_sums(d, sums[j][0], sums[j][1], sums[j][2], sums[j][3], scores[j] + cell);
    }
  }
}

// acc_j += sum over lanes of p_j[lane] * v_lane, for kQueries query heads and kVectors vectors of
// v.
template <int kQueries, int kVectors>
void accumulate_columns(AttentionQuery* const* queries, const float* values, int d_v, int column,
                        LaneRange range, const float (*p)[kAttentionBlock]) {
  const F32 d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  V acc[kQueries][kVectors];
  for (int j = 0; j < kQueries; ++j) {
    for (int i = 0; i < kVectors; ++i)
      acc[j][i] = hn::LoadU(d, queries[j]->acc + column + i * lanes);
  }
  for (int lane = range.begin; lane < range.end; ++lane) {
    const float* v = values + static_cast<std::ptrdiff_t>(lane) * d_v + column;
    V row[kVectors];
    for (int i = 0; i < kVectors; ++i) row[i] = hn::Load(d, v + i * lanes);
    for (int j = 0; j < kQueries; ++j) {
      const V weight = hn::Set(d, p[j][lane]);
      for (int i = 0; i < kVectors; ++i) acc[j][i] = hn::MulAdd(weight, row[i], acc[j][i]);
    }
  }
  for (int j = 0; j < kQueries; ++j) {
    for (int i = 0; i < kVectors; ++i)
      hn::StoreU(acc[j][i], d, queries[j]->acc + column + i * lanes);
  }
}

template <int kQueries>
void accumulate(AttentionQuery* const* queries, const float* values, int d_v, LaneRange range,
                const float (*p)[kAttentionBlock]) {
  const F32 d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int column = 0;
  for (; column + 4 * lanes <= d_v; column += 4 * lanes) {
    accumulate_columns<kQueries, 4>(queries, values, d_v, column, range, p);
  }
  for (; column < d_v; column += lanes) {
    accumulate_columns<kQueries, 1>(queries, values, d_v, column, range, p);
  }
}

// Turns the scores of one query's block into weights and updates its running maximum and sum.
void update_softmax(AttentionQuery& query, const AttentionShape& shape, LaneRange range,
                    const float* lane_bias, float* scores) {
  const F32 d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const V lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const V first = hn::Set(d, static_cast<float>(range.begin));
  const V last = hn::Set(d, static_cast<float>(range.end));
  const int begin = range.begin / lanes * lanes;

  V top = lowest;
  for (int i = begin; i < range.end; i += lanes) {
    V s = hn::Load(d, scores + i);
    if (shape.softcap != 0.0F) {
      s = hn::Mul(hn::Set(d, shape.softcap), hn::Tanh(d, s));
    }
    if (lane_bias != nullptr) s = hn::Add(s, hn::LoadU(d, lane_bias + i));
    const V lane = hn::Iota(d, static_cast<float>(i));
    const auto seen = hn::And(hn::Ge(lane, first), hn::Lt(lane, last));
    s = hn::IfThenElse(seen, s, lowest);
    hn::Store(s, d, scores + i);
    top = hn::Max(top, s);
  }
  const float block_max = hn::GetLane(hn::MaxOfLanes(d, top));
  if (block_max > query.state.max) {
    const float rescale = std::exp(query.state.max - block_max);
    query.state.max = block_max;
    query.state.sum *= rescale;
    const V factor = hn::Set(d, rescale);
    for (int i = 0; i < shape.d_v; i += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, query.acc + i), factor), d, query.acc + i);
    }
  }
  const V max = hn::Set(d, query.state.max);
  V total = hn::Zero(d);
  for (int i = begin; i < range.end; i += lanes) {
    const V lane = hn::Iota(d, static_cast<float>(i));
    const auto seen = hn::And(hn::Ge(lane, first), hn::Lt(lane, last));
    const V e = hn::Exp(d, hn::Sub(hn::Load(d, scores + i), max));
    const V weight = hn::IfThenElseZero(seen, e);
    hn::Store(weight, d, scores + i);
    total = hn::Add(total, weight);
  }
  query.state.sum += hn::GetLane(hn::SumOfLanes(d, total));
}

struct Block {
  const AttentionShape& shape;
  const float* keys;         // [64][d_k]
  const float* values;       // [64][d_v]
  const std::int32_t start;  // position of lane 0
  const std::int32_t list_first;
};

// Biases are per cell of the list; the kernel wants them per lane of the block.
const float* bias_of_lanes(const AttentionQuery& query, const Block& block, LaneRange range,
                           float* target) {
  if (query.bias == nullptr) return nullptr;
  std::fill(target, target + kAttentionBlock, 0.0F);
  for (int lane = range.begin; lane < range.end; ++lane) {
    target[lane] = query.bias[block.start + lane - block.list_first];
  }
  return target;
}

template <int kQueries>
void run_queries(const Block& block, AttentionQuery** queries, LaneRange range) {
  HWY_ALIGN float scores[kQueries][kAttentionBlock];
  HWY_ALIGN float bias[kAttentionBlock];
  compute_scores<kQueries>(queries, block.keys, block.shape.d_k, range, scores);
  for (int j = 0; j < kQueries; ++j) {
    update_softmax(*queries[j], block.shape, range, bias_of_lanes(*queries[j], block, range, bias),
                   scores[j]);
  }
  accumulate<kQueries>(queries, block.values, block.shape.d_v, range, scores);
}

LaneRange visible_lanes(const AttentionQuery& query, std::int32_t start) {
  const auto lane = [start](std::int32_t position) {
    return std::clamp(position - start, 0, kAttentionBlock);
  };
  return {lane(query.begin), lane(query.end)};
}

// Queries with the same visible lanes run together; the bits are the same either way.
void run_block(const Block& block, std::span<AttentionQuery> queries) {
  std::size_t i = 0;
  while (i < queries.size()) {
    const LaneRange range = visible_lanes(queries[i], block.start);
    AttentionQuery* together[kMaxTogether] = {};
    int n = 0;
    while (i < queries.size() && n < kMaxTogether &&
           visible_lanes(queries[i], block.start) == range) {
      together[n++] = &queries[i++];
    }
    if (range.begin >= range.end) continue;
    switch (n) {
      case 1: run_queries<1>(block, together, range); break;
      case 2: run_queries<2>(block, together, range); break;
      case 3: run_queries<3>(block, together, range); break;
      default: run_queries<4>(block, together, range); break;
    }
  }
}

// The positions of the chunk that some query sees; resets the queries.
LaneRange start_chunk(const AttentionShape& shape, const CellList& list, std::int32_t chunk,
                      std::span<AttentionQuery> queries) {
  LaneRange positions{list.end, list.first};
  for (AttentionQuery& query : queries) {
    query.state = SoftmaxState();
    std::fill(query.acc, query.acc + shape.d_v, 0.0F);
    positions.begin = std::min(positions.begin, query.begin);
    positions.end = std::max(positions.end, query.end);
  }
  return {std::max(positions.begin, chunk * kAttentionChunk),
          std::min(positions.end, (chunk + 1) * kAttentionChunk)};
}

void run_chunk(const AttentionShape& shape, const AttentionSource& source, std::int32_t chunk,
               std::span<AttentionQuery> queries, float* scratch) {
  const CellList& list = source.list;
  const auto [begin, end] = start_chunk(shape, list, chunk, queries);
  float* key_block = scratch;
  float* value_block = scratch + static_cast<std::ptrdiff_t>(kAttentionBlock) * shape.d_k;
  for (std::int32_t at = begin; at < end;) {
    const std::int32_t start = at / kAttentionBlock * kAttentionBlock;
    const std::int32_t stop = std::min(end, start + kAttentionBlock);
    for (std::int32_t position = at; position < stop; ++position) {
      const std::int32_t ahead = std::min(position + kFetchAhead, end - 1);
      fetch_row(source.keys, list.cells[ahead - list.first], shape.d_k);
      fetch_row(source.values, list.cells[ahead - list.first], shape.d_v);
      const std::int32_t cell = list.cells[position - list.first];
      const std::ptrdiff_t lane = position - start;
      load_row(source.keys, cell, shape.d_k, key_block + lane * shape.d_k);
      load_row(source.values, cell, shape.d_v, value_block + lane * shape.d_v);
    }
    run_block(Block{shape, key_block, value_block, start, list.first}, queries);
    at = stop;
  }
}

void scale_row(const float* source, float scale, float* target, int n) {
  const F32 d;
  const V factor = hn::Set(d, scale);
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(d))) {
    hn::StoreU(hn::Mul(factor, hn::LoadU(d, source + i)), d, target + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace graft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace graft {

HWY_EXPORT(run_chunk);
HWY_EXPORT(scale_row);

std::size_t attention_scratch_floats(const AttentionShape& shape) {
  return static_cast<std::size_t>(kAttentionBlock) *
         static_cast<std::size_t>(shape.d_k + shape.d_v);
}

void attend_chunk(const AttentionShape& shape, const AttentionSource& source, std::int32_t chunk,
                  std::span<AttentionQuery> queries, float* scratch) {
  HWY_DYNAMIC_DISPATCH(run_chunk)(shape, source, chunk, queries, scratch);
}

void scale_query(const float* source, float scale, float* target, int n) {
  HWY_DYNAMIC_DISPATCH(scale_row)(source, scale, target, n);
}

void fold_chunk(SoftmaxState& running, float* acc, const SoftmaxState& later,
                const float* later_acc, int d_v) {
  const float top = std::max(running.max, later.max);
  if (top == -std::numeric_limits<float>::infinity()) return;
  const float keep = std::exp(running.max - top);
  const float add = std::exp(later.max - top);
  running.max = top;
  running.sum = running.sum * keep + later.sum * add;
  for (int i = 0; i < d_v; ++i) acc[i] = acc[i] * keep + later_acc[i] * add;
}

void finish_query(const SoftmaxState& state, const float* acc, const float* sink, float* out,
                  int d_v) {
  float keep = 1.0F;
  float sum = state.sum;
  if (sink != nullptr) {
    const float top = std::max(state.max, *sink);
    keep = std::exp(state.max - top);
    sum = sum * keep + std::exp(*sink - top);
  }
  const float factor = sum > 0.0F ? keep / sum : 0.0F;
  for (int i = 0; i < d_v; ++i) out[i] = acc[i] * factor;
}

}  // namespace graft
#endif  // HWY_ONCE
