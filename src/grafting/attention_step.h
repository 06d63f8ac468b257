// AttentionStep: computes the attention nodes of one graph in place of ggml, at a cost that follows
// each row's own cells, in an order that depends on the row alone (design section 2b).
//
// prepare() runs on the thread that calls llama_decode, before the graph is computed; compute()
// runs inside it, on all threads of the pool at once, one node at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "grafting/graph_index.h"
#include "grafting/kernels/attention_kernel.h"
#include "grafting/step_plan.h"
#include "grafting/visible_cells.h"

namespace graft {

// Whether the step can read a cache of this ggml_type.
bool can_dequantize_cache(int ggml_type);

class AttentionStep {
 public:
  explicit AttentionStep(std::int32_t n_threads) : n_threads_(n_threads) {}

  // Learns the positions of the cells that the graph writes. Must see every graph of the context,
  // also those whose attention ggml computes.
  void learn_positions(const GraphIndex& index);

  // Positions of cells that no graph wrote (see Grafter::supply_positions).
  void supply_positions(std::int32_t sequence, std::vector<std::int32_t> positions);
  bool awaits_restored() const { return !restored_.empty(); }
  // Learns them from the masks of a step with rows of such sequences. Why it could not, or empty.
  // Requires: the inputs are written and the graph's rows are the plan's.
  std::string learn_restored(const GraphIndex& index, const StepPlan& plan);

  // Finds the visible cells of every mask and cuts the work. Requires: the inputs are written.
  void prepare(const GraphIndex& index);

  // Computes index.attention[node]. Called by all `nth` threads.
  void compute(std::size_t node, int ith, int nth);

  std::size_t n_nodes() const { return n_nodes_; }

 private:
  // Rows of a group that one work item computes together, with the chunks of positions they see.
  struct RowBlock {
    std::int32_t first_row = 0;
    std::int32_t n_rows = 0;
    std::int32_t group = 0;
    std::int32_t first_chunk = 0;
    std::int32_t end_chunk = 0;
  };
  // One chunk of one block: the unit of work when there are fewer blocks than threads can share.
  struct ChunkItem {
    std::int32_t block = 0;
    std::int32_t chunk = 0;
  };
  struct Mask {
    VisibleCells visible;
    std::vector<RowBlock> blocks;
    std::vector<ChunkItem> chunk_items;
    std::vector<std::int32_t> first_chunk_item;  // of each block
    std::vector<std::int64_t> row_cells;
    const ggml_tensor* tensor = nullptr;
  };
  struct Node {
    const AttentionNode* source = nullptr;
    Mask* mask = nullptr;
    AttentionShape shape;
    std::int32_t n_heads_k = 0;
    float max_bias = 0.0F;
    bool split = false;  // work items are chunks, folded at the end
    std::atomic<std::int32_t> next_item{0};
    std::atomic<std::int32_t> n_finished{0};

    std::int32_t n_items() const;
  };
  // What a thread needs to run one block. `queries` point into `floats`.
  struct Scratch {
    std::vector<float> floats;
    std::vector<float> bias;
    std::vector<SoftmaxState> state;
    std::vector<AttentionQuery> queries;
  };

  bool learn_from_mask(const GraphIndex& index, const MaskUse& use, std::int32_t row,
                       const std::vector<std::int32_t>& positions);
  void prepare_mask(const GraphIndex& index, const MaskUse& use, Mask& mask);
  static void cut_blocks(Mask& mask);
  void prepare_node(const AttentionNode& source, Node& node);
  std::size_t partial_floats(const Node& node) const;
  float* partial(const Node& node, std::int32_t item, std::int32_t head);
  int load_queries(const Node& node, const RowBlock& block, int head, Scratch& scratch) const;
  void load_bias(const Node& node, const RowBlock& block, int head, Scratch& scratch) const;
  void run_chunk(const Node& node, const RowBlock& block, std::int32_t chunk, int head,
                 Scratch& scratch) const;
  void run_block(const Node& node, const RowBlock& block, int head, Scratch& scratch) const;
  void run_item(Node& node, std::int32_t item, Scratch& scratch);
  void run_chunk_item(const Node& node, std::int32_t item, int head, Scratch& scratch);
  void fold_block(const Node& node, std::int32_t block, int head, Scratch& scratch);
  static void write_query(const Node& node, const RowBlock& block, int head, int query,
                          const SoftmaxState& state, const float* acc);

  std::int32_t n_threads_;
  std::unordered_map<const ggml_tensor*, PositionTable> tables_;          // by cache tensor
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> restored_;  // by sequence
  std::vector<std::unique_ptr<Mask>> masks_;
  std::deque<Node> nodes_;
  std::size_t n_nodes_ = 0;
  std::vector<Scratch> scratch_;  // per thread
  std::vector<float> partials_;   // of the node being computed with split work
};

}  // namespace graft
