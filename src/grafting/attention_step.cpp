#include "grafting/attention_step.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <thread>
#include <utility>

namespace graft {
namespace {

constexpr std::int32_t kRowsPerBlock = 8;
// Work is cut into chunks when there are fewer blocks than this per thread.
constexpr std::int32_t kItemsPerThread = 4;

float float_param(const ggml_tensor* node, int index) {
  float value = 0.0F;
  std::memcpy(&value, node->op_params + index, sizeof(value));
  return value;
}

void dequantize_with(const ggml_type type, const void* source, float* target, std::int64_t n) {
  ggml_get_type_traits(type)->to_float(source, target, n);
}

// One instantiation per cache type that llama.cpp offers, because the kernel takes a plain pointer.
template <ggml_type kType>
void dequantize_row(const void* source, float* target, std::int64_t n) {
  dequantize_with(kType, source, target, n);
}

DequantizeRow dequantizer(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q8_0: return dequantize_row<GGML_TYPE_Q8_0>;
    case GGML_TYPE_Q4_0: return dequantize_row<GGML_TYPE_Q4_0>;
    case GGML_TYPE_Q4_1: return dequantize_row<GGML_TYPE_Q4_1>;
    case GGML_TYPE_Q5_0: return dequantize_row<GGML_TYPE_Q5_0>;
    case GGML_TYPE_Q5_1: return dequantize_row<GGML_TYPE_Q5_1>;
    case GGML_TYPE_IQ4_NL: return dequantize_row<GGML_TYPE_IQ4_NL>;
    case GGML_TYPE_BF16: return dequantize_row<GGML_TYPE_BF16>;
    default: return nullptr;
  }
}

CacheView view_of(const ggml_tensor* cache, int head) {
  CacheView view;
  view.base = static_cast<const char*>(cache->data) + static_cast<std::size_t>(head) * cache->nb[2];
  view.cell_stride = cache->nb[1];
  view.type = cache->type == GGML_TYPE_F16   ? CacheType::kF16
              : cache->type == GGML_TYPE_F32 ? CacheType::kF32
                                             : CacheType::kOther;
  view.dequantize = dequantizer(cache->type);
  return view;
}

MaskRows mask_rows(const GraphIndex& index, const MaskUse& use) {
  MaskRows rows;
  rows.data = static_cast<const std::uint16_t*>(use.mask->data);
  rows.n_kv = use.mask->ne[0];
  rows.row_stride = use.mask->nb[1] / sizeof(std::uint16_t);
  rows.n_rows = static_cast<std::int32_t>(index.n_tokens());
  return rows;
}

// ALiBi slope of a query head (Press et al., arXiv:2108.12409), as ggml computes it.
float alibi_slope(float max_bias, std::int64_t n_heads, std::int64_t head) {
  if (max_bias <= 0.0F) return 1.0F;
  const auto n_pow2 = static_cast<float>(
      std::int64_t{1} << static_cast<int>(std::floor(std::log2(static_cast<double>(n_heads)))));
  const auto h = static_cast<float>(head);
  return h < n_pow2
             ? std::pow(std::pow(2.0F, -max_bias / n_pow2), h + 1.0F)
             : std::pow(std::pow(2.0F, -max_bias / 2.0F / n_pow2), 2.0F * (h - n_pow2) + 1.0F);
}

}  // namespace

bool can_dequantize_cache(int type) {
  return type == GGML_TYPE_F16 || type == GGML_TYPE_F32 ||
         dequantizer(static_cast<ggml_type>(type)) != nullptr;
}

std::int32_t AttentionStep::Node::n_items() const {
  const std::size_t n = split ? mask->chunk_items.size() : mask->blocks.size();
  return static_cast<std::int32_t>(n) * n_heads_k;
}

void AttentionStep::learn_positions(const GraphIndex& index) {
  if (index.positions == nullptr) return;
  const auto* positions = static_cast<const std::int32_t*>(index.positions->data);
  for (const MaskUse& use : index.masks) {
    const CacheWrite& write = index.writes[static_cast<std::size_t>(use.table)];
    PositionTable& table = tables_[write.cache];
    table.resize(write.n_cells);
    const auto* cells = static_cast<const std::int64_t*>(write.idxs->data);
    const std::int64_t n = std::min(write.idxs->ne[0], index.positions->ne[0]);
    for (std::int64_t row = 0; row < n; ++row) table.set(cells[row], positions[row]);
  }
}

void AttentionStep::supply_positions(std::int32_t sequence, std::vector<std::int32_t> positions) {
  if (positions.empty()) {
    restored_.erase(sequence);
  } else {
    restored_[sequence] = std::move(positions);
  }
}

// What `row` sees beside the cells that this graph writes are the sequence's earlier cells.
bool AttentionStep::learn_from_mask(const GraphIndex& index, const MaskUse& use, std::int32_t row,
                                    const std::vector<std::int32_t>& positions) {
  const CacheWrite& write = index.writes[static_cast<std::size_t>(use.table)];
  const auto* written = static_cast<const std::int64_t*>(write.idxs->data);
  const MaskRows rows = mask_rows(index, use);
  std::vector<std::int32_t> cells;
  VisibleCells::collect(rows.row(row), rows.n_kv, cells);
  const std::set<std::int64_t> fresh(written, written + write.idxs->ne[0]);
  std::erase_if(cells, [&](std::int32_t cell) { return fresh.count(cell) > 0; });
  if (cells.size() != positions.size()) return false;
  PositionTable& table = tables_[write.cache];
  for (std::size_t i = 0; i < cells.size(); ++i) table.set(cells[i], positions[i]);
  return true;
}

std::string AttentionStep::learn_restored(const GraphIndex& index, const StepPlan& plan) {
  for (std::size_t row = 0; row < plan.rows.size(); ++row) {
    const auto restored = restored_.find(plan.rows[row].sequence);
    if (restored == restored_.end()) continue;
    for (const MaskUse& use : index.masks) {
      if (!learn_from_mask(index, use, static_cast<std::int32_t>(row), restored->second)) {
        return "a restored sequence does not have the cells that were restored";
      }
    }
    restored_.erase(restored);
  }
  return "";
}

void AttentionStep::prepare_mask(const GraphIndex& index, const MaskUse& use, Mask& mask) {
  const CacheWrite& write = index.writes[static_cast<std::size_t>(use.table)];
  const auto* cells = static_cast<const std::int64_t*>(write.idxs->data);
  mask.tensor = use.mask;
  mask.row_cells.assign(cells, cells + write.idxs->ne[0]);
  mask.visible.build(mask_rows(index, use), mask.row_cells, tables_[write.cache]);
  cut_blocks(mask);
}

void AttentionStep::cut_blocks(Mask& mask) {
  mask.blocks.clear();
  mask.chunk_items.clear();
  mask.first_chunk_item.clear();
  const std::span<const RowRun> runs = mask.visible.runs();
  for (std::size_t g = 0; g < mask.visible.groups().size(); ++g) {
    const RowGroup& group = mask.visible.groups()[g];
    for (std::int32_t i = 0; i < group.n_rows; i += kRowsPerBlock) {
      RowBlock block{group.first_row + i, std::min(kRowsPerBlock, group.n_rows - i),
                     static_cast<std::int32_t>(g), std::numeric_limits<std::int32_t>::max(), 0};
      for (std::int32_t r = block.first_row; r < block.first_row + block.n_rows; ++r) {
        const RowRun& run = runs[static_cast<std::size_t>(r)];
        if (run.begin >= run.end) continue;
        block.first_chunk = std::min(block.first_chunk, run.begin / kAttentionChunk);
        block.end_chunk = std::max(block.end_chunk, (run.end - 1) / kAttentionChunk + 1);
      }
      block.first_chunk = std::min(block.first_chunk, block.end_chunk);
      mask.first_chunk_item.push_back(static_cast<std::int32_t>(mask.chunk_items.size()));
      for (std::int32_t chunk = block.first_chunk; chunk < block.end_chunk; ++chunk) {
        mask.chunk_items.push_back({static_cast<std::int32_t>(mask.blocks.size()), chunk});
      }
      mask.blocks.push_back(block);
    }
  }
}

std::size_t AttentionStep::partial_floats(const Node& node) const {
  return static_cast<std::size_t>(kRowsPerBlock * node.shape.group) *
         static_cast<std::size_t>(node.shape.d_v + 2);
}

void AttentionStep::prepare_node(const AttentionNode& source, Node& node) {
  node.source = &source;
  node.mask = masks_[static_cast<std::size_t>(source.mask_index)].get();
  node.n_heads_k = static_cast<std::int32_t>(source.k->ne[2]);
  node.shape.d_k = static_cast<int>(source.k->ne[0]);
  node.shape.d_v = static_cast<int>(source.v->ne[0]);
  node.shape.group = static_cast<int>(source.q->ne[2] / source.k->ne[2]);
  node.shape.scale = float_param(source.node, 0);
  node.max_bias = float_param(source.node, 1);
  node.shape.softcap = float_param(source.node, 2);
  if (node.shape.softcap != 0.0F) node.shape.scale /= node.shape.softcap;
  const auto n_blocks = static_cast<std::int32_t>(node.mask->blocks.size());
  node.split = n_blocks * node.n_heads_k < n_threads_ * kItemsPerThread &&
               node.mask->chunk_items.size() > node.mask->blocks.size();
  node.next_item.store(0, std::memory_order_relaxed);
  node.n_finished.store(0, std::memory_order_relaxed);

  const auto n_queries = static_cast<std::size_t>(kRowsPerBlock * node.shape.group);
  const auto d_k = static_cast<std::size_t>(node.shape.d_k);
  const auto d_v = static_cast<std::size_t>(node.shape.d_v);
  const std::size_t n_floats =
      attention_scratch_floats(node.shape) + n_queries * (d_k + 2 * d_v) + 16;
  for (Scratch& scratch : scratch_) {
    if (scratch.floats.size() < n_floats) scratch.floats.resize(n_floats);
    if (scratch.queries.size() < n_queries) scratch.queries.resize(n_queries);
  }
  if (node.split) {
    const std::size_t n = partial_floats(node) * node.mask->chunk_items.size() *
                          static_cast<std::size_t>(node.n_heads_k);
    if (partials_.size() < n) partials_.resize(n);
  }
}

void AttentionStep::prepare(const GraphIndex& index) {
  scratch_.resize(static_cast<std::size_t>(n_threads_));
  while (masks_.size() < index.masks.size()) masks_.push_back(std::make_unique<Mask>());
  for (std::size_t i = 0; i < index.masks.size(); ++i) {
    prepare_mask(index, index.masks[i], *masks_[i]);
  }
  while (nodes_.size() < index.attention.size()) nodes_.emplace_back();
  n_nodes_ = index.attention.size();
  for (std::size_t i = 0; i < n_nodes_; ++i) prepare_node(index.attention[i], nodes_[i]);
}

namespace {

// 64-byte aligned start inside a scratch vector that has 16 floats to spare.
float* aligned(std::vector<float>& floats) {
  const auto address = reinterpret_cast<std::uintptr_t>(floats.data());
  return floats.data() + (64 - address % 64) % 64 / sizeof(float);
}

}  // namespace

// Fills scratch.queries for the rows of a block and one key head; returns how many there are.
int AttentionStep::load_queries(const Node& node, const RowBlock& block, int head,
                                Scratch& scratch) const {
  const AttentionShape& shape = node.shape;
  const ggml_tensor* q = node.source->q;
  float* at = aligned(scratch.floats) + attention_scratch_floats(shape);
  int n = 0;
  for (std::int32_t r = 0; r < block.n_rows; ++r) {
    const RowRun& run = node.mask->visible.runs()[static_cast<std::size_t>(block.first_row + r)];
    for (int g = 0; g < shape.group; ++g) {
      const auto* source = reinterpret_cast<const float*>(
          static_cast<const char*>(q->data) +
          static_cast<std::size_t>(block.first_row + r) * q->nb[1] +
          static_cast<std::size_t>(head * shape.group + g) * q->nb[2]);
      scale_query(source, shape.scale, at, shape.d_k);
      AttentionQuery& query = scratch.queries[static_cast<std::size_t>(n)];
      query = AttentionQuery();
      query.q = at;
      query.acc = at + shape.d_k;
      query.begin = run.begin;
      query.end = run.end;
      at += shape.d_k + shape.d_v;
      ++n;
    }
  }
  if (node.mask->visible.has_bias()) load_bias(node, block, head, scratch);
  return n;
}

void AttentionStep::load_bias(const Node& node, const RowBlock& block, int head,
                              Scratch& scratch) const {
  const VisibleCells& visible = node.mask->visible;
  const RowGroup& group = visible.groups()[static_cast<std::size_t>(block.group)];
  const auto length = static_cast<std::size_t>(group.end_position - group.first_position);
  const std::int32_t* cells = visible.cells().data() + group.list_begin;
  const ggml_tensor* mask = node.mask->tensor;
  const auto n_queries = static_cast<std::size_t>(block.n_rows * node.shape.group);
  if (scratch.bias.size() < n_queries * length) scratch.bias.resize(n_queries * length);
  for (std::size_t i = 0; i < n_queries; ++i) {
    const int g = static_cast<int>(i) % node.shape.group;
    const std::int32_t row = block.first_row + static_cast<std::int32_t>(i) / node.shape.group;
    const float slope =
        alibi_slope(node.max_bias, node.source->q->ne[2], head * node.shape.group + g);
    const auto* values = reinterpret_cast<const ggml_fp16_t*>(
        static_cast<const char*>(mask->data) + static_cast<std::size_t>(row) * mask->nb[1]);
    AttentionQuery& query = scratch.queries[i];
    float* bias = scratch.bias.data() + i * length;
    for (std::int32_t p = query.begin; p < query.end; ++p) {
      const std::int32_t at = p - group.first_position;
      bias[at] = slope * ggml_fp16_to_fp32(values[cells[at]]);
    }
    query.bias = bias;
  }
}

void AttentionStep::run_chunk(const Node& node, const RowBlock& block, std::int32_t chunk, int head,
                              Scratch& scratch) const {
  const VisibleCells& visible = node.mask->visible;
  const RowGroup& group = visible.groups()[static_cast<std::size_t>(block.group)];
  const AttentionSource source{
      .list = {visible.cells().data() + group.list_begin, group.first_position, group.end_position},
      .keys = view_of(node.source->k, head),
      .values = view_of(node.source->v, head)};
  const auto n_queries = static_cast<std::size_t>(block.n_rows * node.shape.group);
  attend_chunk(node.shape, source, chunk, std::span(scratch.queries).first(n_queries),
               aligned(scratch.floats));
}

void AttentionStep::write_query(const Node& node, const RowBlock& block, int head, int query,
                                const SoftmaxState& state, const float* acc) {
  const ggml_tensor* target = node.source->node;
  const int g = query % node.shape.group;
  const std::int32_t row = block.first_row + query / node.shape.group;
  const auto q_head = static_cast<std::size_t>(head * node.shape.group + g);
  auto* out = reinterpret_cast<float*>(static_cast<char*>(target->data) + q_head * target->nb[1] +
                                       static_cast<std::size_t>(row) * target->nb[2]);
  const ggml_tensor* sinks = node.source->sinks;
  const float* sink = sinks == nullptr ? nullptr : static_cast<const float*>(sinks->data) + q_head;
  finish_query(state, acc, sink, out, node.shape.d_v);
}

// All chunks of a block in order, folded as they come.
void AttentionStep::run_block(const Node& node, const RowBlock& block, int head,
                              Scratch& scratch) const {
  const int n = load_queries(node, block, head, scratch);
  const auto d_v = static_cast<std::size_t>(node.shape.d_v);
  float* running = aligned(scratch.floats) + attention_scratch_floats(node.shape) +
                   static_cast<std::size_t>(n) * (static_cast<std::size_t>(node.shape.d_k) + d_v);
  std::vector<SoftmaxState>& state = scratch.state;
  state.assign(static_cast<std::size_t>(n), SoftmaxState());
  std::fill(running, running + static_cast<std::size_t>(n) * d_v, 0.0F);
  for (std::int32_t chunk = block.first_chunk; chunk < block.end_chunk; ++chunk) {
    run_chunk(node, block, chunk, head, scratch);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const AttentionQuery& query = scratch.queries[i];
      fold_chunk(state[i], running + i * d_v, query.state, query.acc, node.shape.d_v);
    }
  }
  for (int i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    write_query(node, block, head, i, state[at], running + at * d_v);
  }
}

float* AttentionStep::partial(const Node& node, std::int32_t item, std::int32_t head) {
  return partials_.data() +
         (static_cast<std::size_t>(item) * static_cast<std::size_t>(node.n_heads_k) +
          static_cast<std::size_t>(head)) *
             partial_floats(node);
}

void AttentionStep::run_chunk_item(const Node& node, std::int32_t item, int head,
                                   Scratch& scratch) {
  const ChunkItem& chunk = node.mask->chunk_items[static_cast<std::size_t>(item)];
  const RowBlock& block = node.mask->blocks[static_cast<std::size_t>(chunk.block)];
  const int n = load_queries(node, block, head, scratch);
  run_chunk(node, block, chunk.chunk, head, scratch);
  float* at = partial(node, item, head);
  for (int i = 0; i < n; ++i) {
    const AttentionQuery& query = scratch.queries[static_cast<std::size_t>(i)];
    at[0] = query.state.max;
    at[1] = query.state.sum;
    std::copy(query.acc, query.acc + node.shape.d_v, at + 2);
    at += node.shape.d_v + 2;
  }
}

void AttentionStep::fold_block(const Node& node, std::int32_t index, int head, Scratch& scratch) {
  const RowBlock& block = node.mask->blocks[static_cast<std::size_t>(index)];
  const std::int32_t first = node.mask->first_chunk_item[static_cast<std::size_t>(index)];
  const int stride = node.shape.d_v + 2;
  float* acc = aligned(scratch.floats);
  for (int i = 0; i < block.n_rows * node.shape.group; ++i) {
    SoftmaxState state;
    std::fill(acc, acc + node.shape.d_v, 0.0F);
    for (std::int32_t c = 0; c < block.end_chunk - block.first_chunk; ++c) {
      const float* later = partial(node, first + c, head) + static_cast<std::ptrdiff_t>(i) * stride;
      fold_chunk(state, acc, {.max = later[0], .sum = later[1]}, later + 2, node.shape.d_v);
    }
    write_query(node, block, head, i, state, acc);
  }
}

void AttentionStep::run_item(Node& node, std::int32_t item, Scratch& scratch) {
  const int head = item % node.n_heads_k;
  if (node.split) {
    run_chunk_item(node, item / node.n_heads_k, head, scratch);
    node.n_finished.fetch_add(1, std::memory_order_release);
  } else {
    run_block(node, node.mask->blocks[static_cast<std::size_t>(item / node.n_heads_k)], head,
              scratch);
  }
}

void AttentionStep::compute(std::size_t index, int ith, int nth) {
  Node& node = nodes_[index];
  Scratch& scratch = scratch_[static_cast<std::size_t>(ith)];
  const std::int32_t n_items = node.n_items();
  // With work enough, a thread takes all heads of a block: their keys and values lie side by side.
  const std::int32_t n_grab =
      n_items >= nth * kItemsPerThread * node.n_heads_k ? node.n_heads_k : 1;
  for (;;) {
    const std::int32_t first = node.next_item.fetch_add(n_grab, std::memory_order_relaxed);
    if (first >= n_items) break;
    for (std::int32_t item = first; item < std::min(first + n_grab, n_items); ++item) {
      run_item(node, item, scratch);
    }
  }
  if (!node.split) return;
  while (node.n_finished.load(std::memory_order_acquire) < n_items) std::this_thread::yield();
  const auto n_blocks = static_cast<std::int32_t>(node.mask->blocks.size());
  for (std::int32_t i = ith; i < n_blocks * node.n_heads_k; i += nth) {
    fold_block(node, i / node.n_heads_k, i % node.n_heads_k, scratch);
  }
}

}  // namespace graft
