#include "grafting/graph_index.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "grafting/attention_step.h"

namespace graft {
namespace {

// The name of an input of the graph; empty when the leaf is none. The scheduler calls the copy that
// it makes on a device "backend#name#number".
std::string_view input_name(const ggml_tensor* leaf) {
  const std::string_view name(leaf->name);
  const std::size_t first = name.find('#');
  if (first == std::string_view::npos) {
    return (leaf->flags & GGML_TENSOR_FLAG_INPUT) != 0 ? name : std::string_view();
  }
  const std::size_t last = name.rfind('#');
  return last > first ? name.substr(first + 1, last - first - 1) : std::string_view();
}

// Weights live in buffers marked as such; inputs, caches and activations do not.
bool is_weight(const ggml_tensor* tensor) {
  return tensor->op == GGML_OP_NONE && tensor->view_src == nullptr && tensor->buffer != nullptr &&
         ggml_backend_buffer_get_usage(tensor->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

std::optional<SiteOp> site_op(const ggml_tensor* node) {
  switch (node->op) {
    case GGML_OP_MUL_MAT: return SiteOp::kMatMul;
    case GGML_OP_MUL_MAT_ID: return SiteOp::kMatMulId;
    case GGML_OP_GET_ROWS: return SiteOp::kGetRows;
    default: return std::nullopt;
  }
}

bool is_plain_f32_rows(const ggml_tensor* tensor) {
  return tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float);
}

// Why modules may not act on this node; empty when they may. Checked here, never in the kernel.
std::string refusal_of(const ggml_tensor* node, SiteOp op) {
  const ggml_tensor* weight = node->src[0];
  const ggml_tensor* x = node->src[1];
  if (!is_plain_f32_rows(node)) return "its result is not a plain F32 matrix";
  if (op == SiteOp::kMatMulId) {
    const bool plain =
        is_plain_f32_rows(x) && weight->ne[3] == 1 &&
        (x->ne[1] == 1 || x->nb[2] == x->nb[1] * static_cast<std::size_t>(x->ne[1])) &&
        node->nb[2] == node->nb[1] * static_cast<std::size_t>(node->ne[1]);
    return plain ? "" : "its input is not a plain F32 matrix";
  }
  if (weight->ne[2] * weight->ne[3] != 1) return "the weight has more than two dimensions";
  if (node->ne[2] * node->ne[3] != 1) return "its result has more than two dimensions";
  if (op == SiteOp::kMatMul && (!is_plain_f32_rows(x) || x->ne[2] * x->ne[3] != 1)) {
    return "its input is not a plain F32 matrix";
  }
  return "";
}

std::int64_t n_rows(const ggml_tensor* node) {
  return node->op == GGML_OP_MUL_MAT_ID ? node->ne[2] : node->ne[1];
}

const ggml_tensor* root_of(const ggml_tensor* tensor) {
  return tensor->view_src != nullptr ? tensor->view_src : tensor;
}

}  // namespace

std::int32_t SiteTable::add(Site site) {
  const std::int32_t known = find(site.key);
  if (known >= 0) {
    Site& old = sites_[static_cast<std::size_t>(known)];
    if (old.n_in != site.n_in || old.n_out != site.n_out) {
      old.refusal = "the graph uses two weights of this name with different shapes";
    }
    return known;
  }
  const auto index = static_cast<std::int32_t>(sites_.size());
  index_.emplace(site.key, index);
  sites_.push_back(std::move(site));
  return index;
}

// A device's part of the graph may begin behind the lookup of the tokens.
std::int64_t GraphIndex::n_tokens() const {
  const ggml_tensor* input = tokens != nullptr ? tokens : positions;
  return input == nullptr ? 0 : input->ne[0];
}

std::int64_t GraphIndex::n_outputs() const {
  return out_ids == nullptr ? n_tokens() : out_ids->ne[0];
}

// What one pass over the nodes gathers before attention nodes can be judged.
struct GraphIndexer::Scan {
  std::unordered_set<const ggml_tensor*> output_rows;  // nodes behind the GET_ROWS on out_ids
  std::unordered_map<const ggml_tensor*, std::int32_t> table_of_cache;  // cache tensor -> write

  void note_inputs(const ggml_tensor* node, GraphIndex& index) {
    for (const ggml_tensor* source : node->src) {
      if (source == nullptr || source->op != GGML_OP_NONE) continue;
      const std::string_view name = input_name(source);
      if (name == "inp_tokens") index.tokens = source;
      if (name == "inp_pos") index.positions = source;
      if (name == "out_ids") index.out_ids = source;
    }
  }

  // A node is in output rows if any of its inputs is.
  void note_row_space(const ggml_tensor* node, const GraphIndex& index) {
    if (index.out_ids == nullptr) return;
    bool output = node->op == GGML_OP_GET_ROWS && node->src[1] == index.out_ids;
    for (std::size_t i = 0; !output && i < GGML_MAX_SRC && node->src[i] != nullptr; ++i) {
      output = output_rows.count(node->src[i]) > 0;
    }
    if (output) output_rows.insert(node);
  }

  void note_write(const ggml_tensor* node, GraphIndex& index) {
    if (node->op != GGML_OP_SET_ROWS || node->src[1] == nullptr) return;
    const ggml_tensor* idxs = node->src[1];
    const ggml_tensor* cache = root_of(node);
    for (std::size_t i = 0; i < index.writes.size(); ++i) {
      if (index.writes[i].idxs == idxs) {
        table_of_cache.emplace(cache, static_cast<std::int32_t>(i));
        return;
      }
    }
    // Keys and values have index inputs of their own; both describe the same cells, so only the
    // first (keys) makes a table, and value caches are found through the attention's keys.
    if (idxs->type != GGML_TYPE_I64) return;
    table_of_cache.emplace(cache, static_cast<std::int32_t>(index.writes.size()));
    index.writes.push_back({idxs, cache, cache->ne[1] * cache->ne[2]});
  }
};

namespace {

// Looks through the cast that llama.cpp puts before the attention of an F32 cache.
const ggml_tensor* cached_source(const ggml_tensor* tensor, GraphIndex& index) {
  if (tensor->op == GGML_OP_CPY && tensor->type == GGML_TYPE_F16 &&
      tensor->src[0]->type == GGML_TYPE_F32) {
    index.casts.insert(tensor);
    return tensor->src[0];
  }
  return tensor;
}

// Why Graft leaves this attention node to ggml; empty when it computes it.
std::string foreign_reason_of(const ggml_tensor* node, const ggml_tensor* k, const ggml_tensor* v,
                              const GraphIndex& index) {
  const ggml_tensor* q = node->src[0];
  if (q->ne[1] != index.n_tokens()) return "its rows are not the batch's tokens";
  const auto covered = [](const ggml_tensor* t) {
    return can_dequantize_cache(t->type) && t->ne[0] % ggml_blck_size(t->type) == 0;
  };
  const ggml_tensor* mask = node->src[3];
  if (mask == nullptr || mask->type != GGML_TYPE_F16) return "it has no F16 mask";
  if (mask->ne[2] != 1 || mask->ne[3] != 1) return "its mask differs between heads or streams";
  if (q->ne[3] != 1 || k->ne[3] != 1 || v->ne[3] != 1) return "its memory has several streams";
  if (q->type != GGML_TYPE_F32 || q->nb[0] != sizeof(float)) return "its queries are not F32";
  if (!covered(k) || !covered(v)) return "the cache type is not covered";
  if (k->ne[0] % 16 != 0 || v->ne[0] % 16 != 0) return "the head size is not a multiple of 16";
  if (q->ne[2] % k->ne[2] != 0 || k->ne[2] != v->ne[2]) return "its heads do not group evenly";
  if (node->op_params[4] != 0) return "it limits the cells a row may see";
  return "";
}

std::int32_t mask_index_of(const ggml_tensor* mask, std::int32_t table, GraphIndex& index) {
  for (std::size_t i = 0; i < index.masks.size(); ++i) {
    if (index.masks[i].mask == mask) return static_cast<std::int32_t>(i);
  }
  index.masks.push_back({mask, table});
  return static_cast<std::int32_t>(index.masks.size() - 1);
}

void add_attention(ggml_tensor* node,
                   const std::unordered_map<const ggml_tensor*, std::int32_t>& tables,
                   GraphIndex& index) {
  const ggml_tensor* k = cached_source(node->src[1], index);
  const ggml_tensor* v = cached_source(node->src[2], index);
  std::string reason = foreign_reason_of(node, k, v, index);
  const auto table = tables.find(root_of(k));
  if (reason.empty() && table == tables.end()) reason = "its keys are not in the cache";
  if (!reason.empty()) {
    index.casts.erase(node->src[1]);
    index.casts.erase(node->src[2]);
    index.n_foreign_attention += 1;
    index.foreign_reason = std::move(reason);
    return;
  }
  const std::int32_t mask = mask_index_of(node->src[3], table->second, index);
  index.attention.push_back(
      {node, node->src[0], k, v, node->src[3], node->src[4], table->second, mask});
}

}  // namespace

std::int32_t GraphIndexer::site_of(const ggml_tensor* node) {
  const std::optional<SiteOp> op = site_op(node);
  if (!op) return -1;
  const ggml_tensor* weight = node->src[0];
  auto& known = by_weight_[static_cast<std::size_t>(*op)];
  if (const auto found = known.find(weight); found != known.end()) return found->second;
  if (!is_weight(weight)) return -1;
  std::int32_t site = sites_.find({*op, weight->name});
  if (site < 0 && !frozen_) {
    site = sites_.add({.key = {*op, weight->name},
                       .n_in = *op == SiteOp::kGetRows ? weight->ne[1] : weight->ne[0],
                       .n_out = *op == SiteOp::kGetRows ? weight->ne[0] : weight->ne[1],
                       .n_experts = *op == SiteOp::kMatMulId ? weight->ne[2] : 1,
                       .refusal = refusal_of(node, *op)});
  }
  known.emplace(weight, site);
  return site;
}

void GraphIndexer::add_site(ggml_tensor* node, std::int32_t position, const Scan& scan,
                            GraphIndex& index) {
  // A lookup by anything but the batch's tokens (positions, token types) is no embedding site.
  if (node->op == GGML_OP_GET_ROWS && node->src[1] != index.tokens) return;
  const std::int32_t site = site_of(node);
  if (site < 0) return;
  const bool output = scan.output_rows.count(node) > 0;
  index.sites.push_back(
      {node, site, position, output ? RowSpace::kOutputs : RowSpace::kTokens, true});
}

namespace {

// Of the nodes named so, the last is the one that the head reads.
void note_final_state(ggml_tensor* node, bool is_output, GraphIndex& index) {
  if (std::strcmp(node->name, "result_norm") != 0) return;
  index.final_state = {node, is_output ? RowSpace::kOutputs : RowSpace::kTokens};
}

void prove_final_state(GraphIndex& index) {
  const ggml_tensor* node = index.final_state.node;
  if (node == nullptr) return;
  const std::int64_t expected =
      index.final_state.rows == RowSpace::kOutputs ? index.n_outputs() : index.n_tokens();
  const bool is_plain = is_plain_f32_rows(node) && node->ne[2] * node->ne[3] == 1;
  if (!is_plain || node->ne[1] != expected) index.final_state = {};
}

}  // namespace

void GraphIndexer::build(std::span<ggml_tensor* const> nodes, GraphIndex& index) {
  index = GraphIndex();
  Scan scan;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    ggml_tensor* node = nodes[i];
    scan.note_inputs(node, index);
    scan.note_row_space(node, index);
    scan.note_write(node, index);
    add_site(node, static_cast<std::int32_t>(i), scan, index);
    note_final_state(node, scan.output_rows.count(node) > 0, index);
    if (node->op == GGML_OP_FLASH_ATTN_EXT) add_attention(node, scan.table_of_cache, index);
    if (node->op == GGML_OP_MUL && node->src[1] != nullptr) refuse_scaled_weights(node);
  }
  for (SiteNode& site : index.sites) {
    const std::int64_t expected =
        site.rows == RowSpace::kOutputs ? index.n_outputs() : index.n_tokens();
    site.rows_proven = n_rows(site.node) == expected;
  }
  prove_final_state(index);
}

// A weight with a `.scale` tensor behind it (NVFP4, BitNet) multiplies after the matrix product;
// what an adapter adds would have to come after that. Such sites are refused.
void GraphIndexer::refuse_scaled_weights(const ggml_tensor* node) {
  const ggml_tensor* factor = node->src[1];
  const std::size_t length = std::strlen(factor->name);
  constexpr char kSuffix[] = ".scale";
  constexpr std::size_t kSuffixLength = sizeof(kSuffix) - 1;
  if (length < kSuffixLength || !is_weight(factor)) return;
  if (std::strcmp(factor->name + length - kSuffixLength, kSuffix) != 0) return;
  const ggml_tensor* product = node->src[0];
  if (product->op == GGML_OP_MUL_MAT || product->op == GGML_OP_MUL_MAT_ID) {
    sites_.refuse(site_of(product), "the weight has a scale tensor");
  }
}

}  // namespace graft
