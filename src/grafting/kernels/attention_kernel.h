// The inner loop of the attention step: softmax(q k^T * scale [capped] [+ bias]) v for a few rows
// of one sequence against its own cells, in a fixed order that depends on the row alone.
//
// Order of a row's sum (the promise of batch invariance, design section 2b): a cell's lane is its
// position modulo 64 and its block the position divided by 64; blocks of kBlocksPerChunk form a
// chunk; within a chunk the online softmax (Milakov and Gimelshein, arXiv:1805.02867) runs over the
// blocks in order; chunks are folded in order. Which rows are computed together, which thread does
// it and whether chunks are computed in parallel changes no bit.
//
// Highway with dynamic dispatch; thread-safe, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace graft {

inline constexpr int kAttentionBlock = 64;  // cells per block
inline constexpr int kBlocksPerChunk = 8;   // blocks per chunk
inline constexpr int kAttentionChunk = kAttentionBlock * kBlocksPerChunk;

enum class CacheType : std::uint8_t { kF16, kF32, kOther };

// Turns one cell's values of a key head into f32. For CacheType::kOther.
using DequantizeRow = void (*)(const void* source, float* target, std::int64_t n);

// One tensor of cached keys or values, seen from one key head.
struct CacheView {
  const char* base = nullptr;   // cell 0 of this key head
  std::size_t cell_stride = 0;  // bytes from cell to cell
  CacheType type = CacheType::kF16;
  DequantizeRow dequantize = nullptr;
};

// Shape and constants shared by all rows of a node. d_k and d_v are multiples of 16.
struct AttentionShape {
  int d_k = 0;
  int d_v = 0;
  int group = 0;  // query heads per key head
  float scale = 1.0F;
  float softcap = 0.0F;  // 0 = none; scores become softcap * tanh(score)
};

// State of an online softmax: the largest score so far and the sum of exponentials relative to it.
struct SoftmaxState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0F;
};

// A query head of a row: what it reads, where it accumulates.
struct AttentionQuery {
  const float* q = nullptr;  // [d_k], already scaled
  float* acc = nullptr;      // [d_v], unnormalised sum of this chunk
  SoftmaxState state;        // of this chunk
  std::int32_t begin = 0;    // first visible position (inclusive)
  std::int32_t end = 0;      // last visible position + 1
  // Added to the score of a cell before the softmax, per cell of the list; null = none (ALiBi).
  const float* bias = nullptr;  // indexed like `cells`
};

// The cells of one sequence in order of position: cell of position p is cells[p - first].
struct CellList {
  const std::int32_t* cells = nullptr;
  std::int32_t first = 0;  // position of cells[0]
  std::int32_t end = 0;    // last position + 1
};

// What the queries of a call read: one key head of one sequence.
struct AttentionSource {
  CellList list;
  CacheView keys;
  CacheView values;
};

// Scratch floats that attend_chunk needs per thread.
std::size_t attention_scratch_floats(const AttentionShape& shape);

// Runs one chunk (positions chunk * kAttentionChunk ...) for query heads that share a source.
// Initialises acc and state of each query, then leaves the chunk's partial result there. A query
// that sees nothing in the chunk keeps the initial state and acc = 0.
void attend_chunk(const AttentionShape& shape, const AttentionSource& source, std::int32_t chunk,
                  std::span<AttentionQuery> queries, float* scratch);

// target[i] = source[i] * scale, n a multiple of 16.
void scale_query(const float* source, float scale, float* target, int n);

// Folds the partial result of a later chunk into the running one. acc has d_v values.
void fold_chunk(SoftmaxState& running, float* acc, const SoftmaxState& later,
                const float* later_acc, int d_v);

// Adds an attention sink (a score without a value) and writes acc / sum; zeros if nothing was seen.
void finish_query(const SoftmaxState& state, const float* acc, const float* sink, float* out,
                  int d_v);

}  // namespace graft
