// StateTap: copies the final states of some rows out of a step while it is computed, for
// embeddings. One op behind the node that holds them (GraphIndex::final_state), in steps that have
// such rows and no others.
//
// select() and op_for() run on the thread that calls llama_decode, before the graph is computed;
// the op runs inside it; states are read after it, until the next select().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "grafting/graph_index.h"
#include "grafting/step_plan.h"

struct ggml_context;
struct ggml_tensor;

namespace graft {

class StateTap {
 public:
  static bool is_in(const StepPlan& plan) {
    return std::any_of(plan.rows.begin(), plan.rows.end(),
                       [](const PlannedRow& row) { return row.is_tapped; });
  }

  // Which rows the next computation copies. True when the op must come or go: the node list of the
  // last step is then not right for this one.
  bool select(const StepPlan& plan);

  bool is_active() const { return !taken_.empty(); }

  // Requires: is_active(), the node of `from` is not null.
  ggml_tensor* op_for(const FinalState& from, ggml_context* arena);

  // Of a tapped row of the last plan, once its graph was computed.
  std::span<const float> state(std::size_t row) const;

 private:
  struct TakenRow {
    std::size_t row = 0;         // in the plan
    std::int32_t n_outputs = 0;  // output rows before it
  };

  static void run(ggml_tensor* target, int ith, int nth, void* tap);

  std::vector<TakenRow> taken_;  // ascending
  FinalState from_;              // what the op of the current node list copies from
  std::size_t n_values_ = 0;
  std::vector<float> states_;  // [taken rows][n_values]
};

}  // namespace graft
