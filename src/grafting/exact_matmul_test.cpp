// ExactMatmul on single matrices of every weight type that ggml can make and multiply: near to
// ggml's own result, and the bits of a row alone.
#include "grafting/exact_matmul.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

namespace graft {
namespace {

constexpr std::int64_t kIn = 512;
constexpr std::int64_t kOut = 70;  // no multiple of a tile or of a thread count
constexpr std::int64_t kRows = 11;
constexpr std::int64_t kExperts = 4;
constexpr std::int64_t kSlots = 2;

struct Free {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
};

std::vector<float> random_floats(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}

// One product of a weight with `n_rows` rows, computed by ggml or by ExactMatmul.
class Product {
 public:
  Product(ggml_type type, std::int64_t n_rows, bool experts) {
    backend_.reset(ggml_backend_cpu_init());
    context_.reset(ggml_init({ggml_tensor_overhead() * 16 + ggml_graph_overhead(), nullptr, true}));
    weights_context_.reset(ggml_init({ggml_tensor_overhead() * 2, nullptr, true}));
    weight = experts ? ggml_new_tensor_3d(weights_context_.get(), type, kIn, kOut, kExperts)
                     : ggml_new_tensor_2d(weights_context_.get(), type, kIn, kOut);
    weights_.reset(ggml_backend_alloc_ctx_tensors(weights_context_.get(), backend_.get()));
    ggml_backend_buffer_set_usage(weights_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_context* c = context_.get();
    if (experts) {
      x = ggml_new_tensor_3d(c, GGML_TYPE_F32, kIn, 1, n_rows);
      ids = ggml_new_tensor_2d(c, GGML_TYPE_I32, kSlots, n_rows);
      node = ggml_mul_mat_id(c, weight, x, ids);
    } else {
      x = ggml_new_tensor_2d(c, GGML_TYPE_F32, kIn, n_rows);
      node = ggml_mul_mat(c, weight, x);
    }
    activations_.reset(ggml_backend_alloc_ctx_tensors(c, backend_.get()));
    node->flags |= GGML_TENSOR_FLAG_COMPUTE;
    fill_weight();
  }

  // Rows from `first` on of one long list, so that products of different sizes share rows.
  void set_rows(std::int64_t first) {
    static const std::vector<float> rows = random_floats(kIn * kRows, 2);
    ggml_backend_tensor_set(x, rows.data() + first * kIn, 0, ggml_nbytes(x));
    if (ids == nullptr) return;
    auto* experts = static_cast<std::int32_t*>(ids->data);
    for (std::int64_t i = 0; i < ggml_nelements(ids); ++i) {
      const std::int64_t row = first + i / kSlots;
      experts[i] = static_cast<std::int32_t>((row * 3 + i % kSlots) % kExperts);
    }
  }

  std::vector<float> by_ggml() { return compute(node, 1); }

  std::vector<float> exactly(int n_threads) {
    EXPECT_EQ(ExactMatmul::why_uncovered(node), nullptr);
    std::unique_ptr<ggml_context, Free> arena(
        ggml_init({ggml_tensor_overhead() * 2, nullptr, true}));
    ExactMatmul matmuls;
    ggml_tensor* op = matmuls.op_for(node, arena.get());
    EXPECT_NE(op->flags & GGML_TENSOR_FLAG_COMPUTE, 0);
    return compute(op, n_threads);
  }

  ggml_tensor* weight = nullptr;
  ggml_tensor* x = nullptr;
  ggml_tensor* ids = nullptr;
  ggml_tensor* node = nullptr;

 private:
  void fill_weight() {
    const std::int64_t n = ggml_nelements(weight);
    const std::vector<float> values = random_floats(n, 1);
    if (weight->type == GGML_TYPE_F32) {
      ggml_backend_tensor_set(weight, values.data(), 0, ggml_nbytes(weight));
      return;
    }
    const std::vector<float> importance(static_cast<std::size_t>(kIn), 1.0F);
    std::vector<char> packed(ggml_nbytes(weight));
    ggml_quantize_chunk(weight->type, values.data(), packed.data(), 0, n / kIn, kIn,
                        importance.data());
    ggml_backend_tensor_set(weight, packed.data(), 0, packed.size());
  }

  // Only `op` and none of its sources, as in a rewritten node list.
  std::vector<float> compute(ggml_tensor* op, int n_threads) {
    std::unique_ptr<ggml_context, Free> c(
        ggml_init({ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true}));
    ggml_cgraph* graph = ggml_new_graph(c.get());
    ggml_graph_add_node(graph, op);
    std::fill_n(static_cast<float*>(node->data), ggml_nelements(node), NAN);
    ggml_backend_cpu_set_n_threads(backend_.get(), n_threads);
    EXPECT_EQ(ggml_backend_graph_compute(backend_.get(), graph), GGML_STATUS_SUCCESS);
    const auto* values = static_cast<const float*>(node->data);
    return {values, values + ggml_nelements(node)};
  }

  std::unique_ptr<ggml_backend, Free> backend_;
  std::unique_ptr<ggml_context, Free> context_;
  std::unique_ptr<ggml_context, Free> weights_context_;
  std::unique_ptr<ggml_backend_buffer, Free> weights_;
  std::unique_ptr<ggml_backend_buffer, Free> activations_;
};

std::vector<ggml_type> weight_types() {
  std::vector<ggml_type> types;
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const auto type = static_cast<ggml_type>(i);
    const bool can_make = type == GGML_TYPE_F32 || type == GGML_TYPE_F16 ||
                          type == GGML_TYPE_BF16 || ggml_is_quantized(type);
    if (can_make && ggml_get_type_traits_cpu(type)->vec_dot != nullptr) types.push_back(type);
  }
  return types;
}

std::string type_name(const ::testing::TestParamInfo<ggml_type>& type) {
  return ggml_type_name(type.param);
}

class ExactMatmulTypes : public ::testing::TestWithParam<ggml_type> {};

// Sums of 512 products of numbers up to 1: rounding of rows to f16 or q8 stays far below this, a
// wrong row, column or expert is of the order of 10.
constexpr float kTolerance = 0.2F;

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = a.size() == b.size() ? 0.0F : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

TEST_P(ExactMatmulTypes, IsNearToGgml) {
  for (const bool experts : {false, true}) {
    Product product(GetParam(), kRows, experts);
    product.set_rows(0);
    const std::vector<float> theirs = product.by_ggml();
    EXPECT_LT(largest_difference(product.exactly(1), theirs), kTolerance) << experts;
  }
}

TEST_P(ExactMatmulTypes, ARowHasItsBitsAloneForAnyThreads) {
  for (const bool experts : {false, true}) {
    Product all(GetParam(), kRows, experts);
    all.set_rows(0);
    const std::vector<float> together = all.exactly(1);
    EXPECT_EQ(all.exactly(3), together) << experts;
    Product one(GetParam(), 1, experts);
    const auto n = static_cast<std::ptrdiff_t>(ggml_nelements(one.node));
    for (std::int64_t row = 0; row < kRows; ++row) {
      one.set_rows(row);
      const auto from = together.begin() + row * n;
      EXPECT_EQ(one.exactly(2), std::vector<float>(from, from + n)) << experts << " " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExactMatmulTypes, ::testing::ValuesIn(weight_types()), type_name);

TEST(ExactMatmul, CoversOnlyWhatItCanRead) {
  Product product(GGML_TYPE_Q8_0, 2, false);
  EXPECT_TRUE(ExactMatmul::covers(product.node));
  ggml_tensor* nodes[] = {product.node};
  EXPECT_EQ(ExactMatmul::first_uncovered(nodes), "");

  ggml_set_name(product.node, "Qcur-0");
  ggml_set_name(product.weight, "blk.0.attn_q.weight");
  ggml_backend_buffer_set_usage(product.weight->buffer, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
  EXPECT_EQ(ExactMatmul::first_uncovered(nodes),
            "Qcur-0 with blk.0.attn_q.weight (q8_0): its matrix is neither a weight nor an input");
  ggml_backend_buffer_set_usage(product.weight->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  product.weight->op = GGML_OP_SCALE;
  EXPECT_FALSE(ExactMatmul::covers(product.node));
  product.weight->op = GGML_OP_NONE;
  product.weight->nb[0] *= 2;
  EXPECT_FALSE(ExactMatmul::covers(product.node));
}

}  // namespace
}  // namespace graft
