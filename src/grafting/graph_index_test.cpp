// What GraphIndexer finds in hand-made graphs: the inputs by name, also where the scheduler has
// copied them to a device, and the row space of each site.
#include "grafting/graph_index.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace graft {
namespace {

constexpr std::int64_t kTokens = 3;
constexpr std::int64_t kOutputs = 2;
constexpr std::int64_t kWidth = 4;

struct FreeContext {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
struct FreeBuffer {
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
};

// Two matmuls with the weights `w.first` and `w.last`; between them the rows drop to the outputs.
class Graph {
 public:
  // Inputs as a device sees them: behind the lookup of the tokens, and copied by the scheduler.
  explicit Graph(bool on_device) : weights_(context()), nodes_in_(context()) {
    ggml_tensor* first = weight("w.first");
    ggml_tensor* last = weight("w.last");
    buffer_.reset(
        ggml_backend_alloc_ctx_tensors_from_buft(weights_.get(), ggml_backend_cpu_buffer_type()));
    ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);

    ggml_context* c = nodes_in_.get();
    ggml_tensor* x = ggml_new_tensor_2d(c, GGML_TYPE_F32, kWidth, kTokens);
    ggml_tensor* positions = input("inp_pos", kTokens, on_device);
    ggml_tensor* out_ids = input("out_ids", kOutputs, on_device);
    nodes_.push_back(ggml_mul_mat(c, first, x));
    nodes_.push_back(ggml_rope(c, ggml_reshape_3d(c, nodes_.back(), kWidth, 1, kTokens), positions,
                               static_cast<int>(kWidth), 0));
    nodes_.push_back(ggml_get_rows(c, ggml_reshape_2d(c, nodes_.back(), kWidth, kTokens), out_ids));
    nodes_.push_back(ggml_set_name(ggml_rms_norm(c, nodes_.back(), 1e-5F), "result_norm"));
    nodes_.push_back(ggml_mul_mat(c, last, nodes_.back()));
  }

  std::span<ggml_tensor* const> nodes() const { return nodes_; }

 private:
  static ggml_context* context() {
    return ggml_init(
        {.mem_size = 32 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true});
  }
  ggml_tensor* weight(const char* name) {
    ggml_tensor* made = ggml_new_tensor_2d(weights_.get(), GGML_TYPE_F32, kWidth, kWidth);
    return ggml_set_name(made, name);
  }
  ggml_tensor* input(const char* name, std::int64_t n, bool on_device) {
    ggml_tensor* made = ggml_new_tensor_1d(nodes_in_.get(), GGML_TYPE_I32, n);
    if (on_device) return ggml_format_name(made, "Graft#%s#0", name);
    ggml_set_input(made);
    return ggml_set_name(made, name);
  }

  std::unique_ptr<ggml_context, FreeContext> weights_;
  std::unique_ptr<ggml_context, FreeContext> nodes_in_;
  std::unique_ptr<ggml_backend_buffer, FreeBuffer> buffer_;
  std::vector<ggml_tensor*> nodes_;
};

TEST(GraphIndex, FindsInputsAndTheirCopiesOnADevice) {
  for (const bool on_device : {false, true}) {
    const Graph graph(on_device);
    GraphIndexer indexer;
    GraphIndex index;
    indexer.build(graph.nodes(), index);
    EXPECT_EQ(index.tokens, nullptr);
    ASSERT_NE(index.positions, nullptr) << on_device;
    ASSERT_NE(index.out_ids, nullptr) << on_device;
    EXPECT_EQ(index.n_tokens(), kTokens);
    EXPECT_EQ(index.n_outputs(), kOutputs);
    ASSERT_EQ(index.sites.size(), 2U);
    EXPECT_EQ(index.sites[0].rows, RowSpace::kTokens);
    EXPECT_EQ(index.sites[1].rows, RowSpace::kOutputs);
    EXPECT_TRUE(index.sites[0].rows_proven && index.sites[1].rows_proven);
    EXPECT_EQ(indexer.sites().at(index.sites[1].site).key.tensor, "w.last");
  }
}

TEST(GraphIndex, FindsTheFinalStatesAndTheirRows) {
  const Graph graph(false);
  GraphIndexer indexer;
  GraphIndex index;
  indexer.build(graph.nodes(), index);
  EXPECT_EQ(index.final_state.node, graph.nodes()[3]);
  EXPECT_EQ(index.final_state.rows, RowSpace::kOutputs);
  // A model that drops rows behind the last norm has them in the batch's rows.
  const std::vector<ggml_tensor*> early = {graph.nodes()[0], graph.nodes()[1]};
  ggml_set_name(early[0], "result_norm");
  indexer.build(early, index);
  EXPECT_EQ(index.final_state.node, early[0]);
  EXPECT_EQ(index.final_state.rows, RowSpace::kTokens);
  // Of another number of rows they cannot be told apart.
  early[0]->ne[1] = kTokens + 1;
  indexer.build(early, index);
  EXPECT_EQ(index.final_state.node, nullptr);
}

// A leaf of that name which is no input of the graph must not be taken for one.
TEST(GraphIndex, OtherLeavesAreNoInputs) {
  const Graph graph(false);
  graph.nodes()[1]->src[1]->flags = 0;
  GraphIndexer indexer;
  GraphIndex index;
  indexer.build(graph.nodes(), index);
  EXPECT_EQ(index.positions, nullptr);
  EXPECT_EQ(index.n_tokens(), 0);
  EXPECT_FALSE(index.sites[0].rows_proven);
}

}  // namespace
}  // namespace graft
