#include "grafting/exact_matmul.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>

namespace graft {
namespace {

// A tile of weight rows stays in the second-level cache while all rows of the batch use it.
constexpr std::size_t kTileBytes = std::size_t{64} * 1024;

std::size_t converted_bytes(const ggml_tensor* node) {
  const ggml_type type = ggml_get_type_traits_cpu(node->src[0]->type)->vec_dot_type;
  return (ggml_row_size(type, node->src[1]->ne[0]) + 63) / 64 * 64;
}

std::size_t offset(const ggml_tensor* tensor, std::int64_t i1, std::int64_t i2, std::int64_t i3) {
  return static_cast<std::size_t>(i1) * tensor->nb[1] +
         static_cast<std::size_t>(i2) * tensor->nb[2] +
         static_cast<std::size_t>(i3) * tensor->nb[3];
}

}  // namespace

bool ExactMatmul::is_matmul(const ggml_tensor* node) {
  return node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID;
}

const char* ExactMatmul::why_uncovered(const ggml_tensor* node) {
  const ggml_tensor* weight = node->src[0];
  const ggml_tensor* x = node->src[1];
  const ggml_tensor* root = weight->view_src != nullptr ? weight->view_src : weight;
  if (root->op != GGML_OP_NONE) return "it multiplies two activations";
  if ((root->flags & GGML_TENSOR_FLAG_INPUT) == 0) {
    if (root->buffer == nullptr ||
        ggml_backend_buffer_get_usage(root->buffer) != GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
      return "its matrix is neither a weight nor an input";
    }
    if (!ggml_backend_buffer_is_host(root->buffer)) {
      return "its weight is repacked; load the model without extra buffers";
    }
  }
  if (weight->nb[0] != ggml_type_size(weight->type)) return "the rows of its weight are strided";
  const ggml_type_traits_cpu* traits = ggml_get_type_traits_cpu(weight->type);
  if (traits->vec_dot == nullptr) return "its weight type has no dot product";
  const ggml_type row_type = traits->vec_dot_type;
  if (row_type != GGML_TYPE_F32 && ggml_get_type_traits_cpu(row_type)->from_float == nullptr) {
    return "rows cannot be converted for its weight type";
  }
  const bool plain = x->type == GGML_TYPE_F32 && node->type == GGML_TYPE_F32 &&
                     x->nb[0] == sizeof(float) && node->nb[0] == sizeof(float);
  return plain ? nullptr : "its rows are not plain F32";
}

std::string ExactMatmul::first_uncovered(std::span<ggml_tensor* const> nodes) {
  for (const ggml_tensor* node : nodes) {
    if (!is_matmul(node)) continue;
    const char* reason = why_uncovered(node);
    if (reason == nullptr) continue;
    const ggml_tensor* weight = node->src[0];
    return std::string(node->name) + " with " + weight->name + " (" + ggml_type_name(weight->type) +
           "): " + reason;
  }
  return "";
}

ggml_tensor* ExactMatmul::op_for(ggml_tensor* node, ggml_context* arena) {
  if (n_calls_ == calls_.size()) calls_.emplace_back();
  Call& call = calls_[n_calls_++];
  call = {this, node};
  ggml_tensor* arguments[] = {node->src[0], node->src[1], node->src[2]};
  const int n_arguments = node->src[2] != nullptr ? 3 : 2;
  ggml_tensor* op =
      ggml_custom_inplace(arena, node, arguments, n_arguments, run, GGML_N_TASKS_MAX, &call);
  op->flags |= node->flags & GGML_TENSOR_FLAG_COMPUTE;
  const auto n_rows = static_cast<std::size_t>(ggml_nrows(node->src[1]));
  const std::size_t n_bytes = n_rows * converted_bytes(node);
  if (scratch_.size() < n_bytes) scratch_.resize(n_bytes);
  items_.reserve(static_cast<std::size_t>(ggml_nrows(node)));
  return op;
}

void ExactMatmul::run(ggml_tensor* /*target*/, int ith, int nth, void* data) {
  const auto* call = static_cast<const Call*>(data);
  call->owner->convert_rows(call->node, ith, nth);
  if (ith == 0) call->owner->list_items(call->node);
  call->owner->barrier_.arrive_and_wait(nth);
  call->owner->multiply(call->node, ith, nth);
}

void ExactMatmul::convert_rows(const ggml_tensor* node, int ith, int nth) {
  const ggml_tensor* x = node->src[1];
  const ggml_type type = ggml_get_type_traits_cpu(node->src[0]->type)->vec_dot_type;
  const ggml_from_float_t from_float = ggml_get_type_traits_cpu(type)->from_float;
  const std::size_t stride = converted_bytes(node);
  for (std::int64_t row = ith; row < ggml_nrows(x); row += nth) {
    const std::int64_t i1 = row % x->ne[1];
    const std::int64_t i2 = row / x->ne[1] % x->ne[2];
    const std::int64_t i3 = row / x->ne[1] / x->ne[2];
    const char* from = static_cast<const char*>(x->data) + offset(x, i1, i2, i3);
    char* to = scratch_.data() + static_cast<std::size_t>(row) * stride;
    if (type == GGML_TYPE_F32) {
      std::memcpy(to, from, static_cast<std::size_t>(x->ne[0]) * sizeof(float));
    } else {
      from_float(reinterpret_cast<const float*>(from), to, x->ne[0]);
    }
  }
}

void ExactMatmul::list_items(const ggml_tensor* node) {
  const ggml_tensor* w = node->src[0];
  const ggml_tensor* x = node->src[1];
  const ggml_tensor* ids = node->op == GGML_OP_MUL_MAT_ID ? node->src[2] : nullptr;
  items_.clear();
  for (std::int64_t row = 0; row < ggml_nrows(node); ++row) {
    const std::int64_t i1 = row % node->ne[1];
    const std::int64_t i2 = row / node->ne[1] % node->ne[2];
    const std::int64_t i3 = row / node->ne[1] / node->ne[2];
    Item item;
    item.out = reinterpret_cast<float*>(static_cast<char*>(node->data) + offset(node, i1, i2, i3));
    if (ids != nullptr) {
      const char* id = static_cast<const char*>(ids->data) +
                       static_cast<std::size_t>(i1) * ids->nb[0] + offset(ids, i2, 0, 0);
      const std::int32_t expert = *reinterpret_cast<const std::int32_t*>(id);
      item.weight = static_cast<const char*>(w->data) + offset(w, 0, expert, 0);
      item.x = i2 * x->ne[1] + i1 % x->ne[1];
    } else {
      item.weight = static_cast<const char*>(w->data) +
                    offset(w, 0, i2 / (x->ne[2] / w->ne[2]), i3 / (x->ne[3] / w->ne[3]));
      item.x = row;
    }
    items_.push_back(item);
  }
  // In place, unlike stable_sort; the order of rows within a matrix does not matter.
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.out < b.out;
  });
}

void ExactMatmul::multiply(const ggml_tensor* node, int ith, int nth) const {
  const ggml_tensor* w = node->src[0];
  const ggml_vec_dot_t vec_dot = ggml_get_type_traits_cpu(w->type)->vec_dot;
  const auto n = static_cast<int>(w->ne[0]);
  const std::size_t stride = converted_bytes(node);
  const std::int64_t n_columns = w->ne[1];
  // As many tiles as give every thread the same number of them.
  const auto n_fitting = static_cast<std::int64_t>(
      (static_cast<std::size_t>(n_columns) * w->nb[1] + kTileBytes - 1) / kTileBytes);
  const std::int64_t n_tiles = (n_fitting + nth - 1) / nth * nth;
  const std::int64_t tile = (n_columns + n_tiles - 1) / n_tiles;
  std::int64_t turn = 0;
  for (std::size_t first = 0, end = 0; first < items_.size(); first = end) {
    while (end < items_.size() && items_[end].weight == items_[first].weight) ++end;
    for (std::int64_t begin = 0; begin < n_columns; begin += tile) {
      if (turn++ % nth != ith) continue;
      const std::int64_t stop = std::min(begin + tile, n_columns);
      for (std::size_t i = first; i < end; ++i) {
        const Item& item = items_[i];
        const char* x = scratch_.data() + static_cast<std::size_t>(item.x) * stride;
        for (std::int64_t c = begin; c < stop; ++c) {
          const char* row = item.weight + static_cast<std::size_t>(c) * w->nb[1];
          vec_dot(n, item.out + c, 0, row, 0, x, 0, 1);
        }
      }
    }
  }
}

}  // namespace graft
