// ExactMatmul: matrix multiplications whose every output row has the same bits whatever other rows
// stand in the batch. Each value is one call of the weight type's public vec_dot with one row, so
// no kernel is chosen by the number of rows. Costs speed in prefill; for --deterministic.
//
// op_for() runs on the thread that calls llama_decode, before the graph is computed; the ops run
// inside it on all threads of the pool, one op at a time, and share one scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "grafting/kernels/spin_barrier.h"

struct ggml_context;
struct ggml_tensor;

namespace graft {

class ExactMatmul {
 public:
  // Forgets the ops of the previous node list.
  void clear() { n_calls_ = 0; }

  // An op that writes the tensor of `node` in its place. Requires: covers(node).
  ggml_tensor* op_for(ggml_tensor* node, ggml_context* arena);

  static bool is_matmul(const ggml_tensor* node);
  // F32 rows times a matrix that is a weight in a plain host buffer or an input of the graph (the
  // rotation of a quantised cache), of a type that has a vec_dot.
  static bool covers(const ggml_tensor* node) { return why_uncovered(node) == nullptr; }
  // Null when it is covered. Requires: is_matmul(node).
  static const char* why_uncovered(const ggml_tensor* node);
  // Names the first matmul that is not covered, its type and the reason; empty when all are.
  static std::string first_uncovered(std::span<ggml_tensor* const> nodes);

 private:
  // One output row: `x` is an index into the converted rows.
  struct Item {
    const char* weight = nullptr;
    std::int64_t x = 0;
    float* out = nullptr;
  };
  struct Call {
    ExactMatmul* owner = nullptr;
    const ggml_tensor* node = nullptr;
  };

  static void run(ggml_tensor* target, int ith, int nth, void* call);
  void list_items(const ggml_tensor* node);
  void convert_rows(const ggml_tensor* node, int ith, int nth);
  void multiply(const ggml_tensor* node, int ith, int nth) const;

  std::deque<Call> calls_;  // the first n_calls_ are in use
  std::size_t n_calls_ = 0;
  std::vector<char> scratch_;  // rows of the op that runs, as its vec_dot takes them
  std::vector<Item> items_;    // of the op that runs, items of one weight matrix side by side
  SpinBarrier barrier_;
};

}  // namespace graft
