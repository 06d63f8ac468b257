// The fused low-rank kernel: y += scale * (B (A x) + bias) for any number of adapters and rows in
// one call from inside a ggml custom op, whose nth threads all enter it with ith = 0 .. nth - 1.
// It allocates nothing and keeps no state. Everything that it is given is borrowed for the call.
//
// Batch invariance: the bits of a row of y depend only on that row's x and y and on the terms that
// act on it. A dot product is computed by one thread in one fixed order; an element of y adds up
// over k = 0 .. rank - 1, then the bias, term after term in the order of LoraSite::work, whatever
// the number of rows, their grouping, or nth.
//
// Two phases: shrink writes t[item][k] = scale * (A x)[k] into scratch, expand adds B t to y. A
// site whose x is read by several nodes may shrink at the first one and expand at each, with a
// barrier of the caller's in between (ggml has one between nodes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "grafting/kernels/spin_barrier.h"
#include "modules/residency/resident_adapter.h"

namespace graft {

struct LoraItem {
  std::int32_t x_row = 0;  // row of x; for kGetRows the token id, a row of A
  std::int32_t y_row = 0;
  std::int32_t expert = 0;  // 0 unless kMatMulId; items of one expert should be adjacent

  friend bool operator==(const LoraItem&, const LoraItem&) = default;
};

// One term with one scale and all rows it acts on. No y_row occurs twice.
struct LoraWork {
  const ResidentTerm* term = nullptr;
  float scale = 1.0F;  // multiplies term->scale
  std::span<const LoraItem> items;
};

struct LoraSite {
  const char* x = nullptr;  // f32 [rows][n_in]; unused for kGetRows
  std::size_t x_stride_bytes = 0;
  char* y = nullptr;  // f32 [rows][outputs of the site], never overlapping x or another y
  std::size_t y_stride_bytes = 0;
  std::span<const LoraWork> work;  // in order of application
};

// Floats that a call with these sites needs as scratch.
std::size_t lora_scratch_floats(std::span<const LoraSite> sites);

// All threads call it with the same arguments but ith. Requires: `scratch` is 64-byte aligned, has
// lora_scratch_floats(sites) floats and is not shared with a call that some thread may still be in;
// every row index lies within x, y, A or the experts; one nth for all calls with one barrier.
void lora_apply(std::span<const LoraSite> sites, float* scratch, SpinBarrier& barrier, int ith,
                int nth);

// The two phases of lora_apply. Every thread's shrink must end before any thread's expand begins.
void lora_shrink(std::span<const LoraSite> sites, float* scratch, int ith, int nth);
void lora_expand(std::span<const LoraSite> sites, const float* scratch, int ith, int nth);

}  // namespace graft
