// Engine: one llama.cpp context behind the grafting backend. A step computes a StepPlan all or
// nothing: rows of many sequences, each with its own modules, in one llama_decode over one unified
// KV memory. What would make libllama abort is checked before it is called.
//
// Threads: create() on any thread; afterwards one thread at a time owns the engine (the scheduler's
// loop). logits() may be read by several threads between two steps. Borrows the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/kv/cell_ledger.h"
#include "engine/kv/sequence_ids.h"
#include "engine/model.h"
#include "grafting/grafter.h"
#include "grafting/step_plan.h"

struct llama_context;

namespace graft {

// What became of a step. Unless it is kDone, nothing was computed and no state has changed.
struct StepOutcome {
  enum Kind : std::uint8_t {
    kDone,
    kRefused,  // some row is at fault: without it the rest may run
    kFailed,   // the computation failed; perhaps one row is at fault, perhaps the engine
  };
  Kind kind = kDone;
  std::string message;
};

class Engine {
 public:
  // Validates every option against the model, creates the context, and runs warm-up steps that
  // check that one decode is one graph computation.
  static Result<std::unique_ptr<Engine>> create(Model& model, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  StepOutcome step(const StepPlan& plan);

  // [n_vocab] logits of an output row of the last step, valid until the next one.
  // Requires: the last step is kDone and row `row` of its plan is an output.
  std::span<const float> logits(std::int32_t row) const;

  // [n_state_values] final state (behind the last norm) of a tapped row of the last step, valid
  // until the next one. Requires: the last step is kDone and row `row` of its plan is tapped.
  std::span<const float> state(std::int32_t row) const {
    return grafter_->state(static_cast<std::size_t>(row));
  }
  // 0 when rows cannot be tapped: no such state in the model's graphs, or computed on a GPU.
  std::int64_t n_state_values() const { return grafter_->n_state_values(); }

  // Sequences. A new one is empty; the number is free again after release().
  std::optional<std::int32_t> acquire_sequence() { return ids_.acquire(); }
  void release_sequence(std::int32_t sequence);  // and all its cells
  // Keeps the first `n_tokens` positions. Requires: the sequence has as many.
  void truncate_sequence(std::int32_t sequence, std::int32_t n_tokens);
  // `to` shares the first `n_tokens` cells of `from`. Requires: `to` is empty.
  void copy_sequence(std::int32_t from, std::int32_t to, std::int32_t n_tokens) {
    share_cells(from, to, 0, n_tokens);
  }
  // `to` shares the cells of the positions [begin, end) of `from`. Requires: `to` ends at `begin`.
  void share_cells(std::int32_t from, std::int32_t to, std::int32_t begin, std::int32_t end);

  // Holders: further sequences that hold cells but take part in no step. Given back with
  // release_sequence().
  std::optional<std::int32_t> acquire_holder() { return holders_.acquire(); }
  std::int32_t n_holders() const { return holders_.capacity(); }
  bool has_sliding_window() const { return model_.facts().has_sliding_window; }
  // Whether libllama still has all positions that a row behind `n_tokens` of them would see. It may
  // drop those outside of a sliding window. Requires: what it has of the sequence has no holes.
  bool has_window(std::int32_t sequence, std::int32_t n_tokens) const;

  // Cells as bytes (engine_state.cpp). Whether this context can do it: one window, our attention.
  bool can_restore() const;
  // Copies the positions [begin, end). Requires: can_restore(); the sequence has them.
  Result<std::vector<std::byte>> save_cells(std::int32_t sequence, std::int32_t begin,
                                            std::int32_t end);
  // Appends `n_tokens` saved positions, which must continue the sequence. Requires: it is live.
  // Without effect when it fails: kResourceExhausted without that many free cells, kDataCorrupt.
  Status restore_cells(std::int32_t sequence, std::span<const std::byte> bytes,
                       std::int32_t n_tokens);
  // Behind the last restore_cells() and before the sequence takes part in a step: its cells'
  // positions are handed to the attention step. Errors: kInternal; then release the sequence.
  Status finish_restore(std::int32_t sequence);

  const CellLedger& cells() const { return cells_; }
  std::int32_t n_free_sequences() const { return ids_.n_free(); }
  std::int32_t max_sequences() const { return options_.max_seqs; }
  std::int32_t max_rows() const { return options_.n_batch; }
  // Outputs of one step beside one per sequence.
  std::int32_t max_reported_rows() const { return options_.max_reported_rows; }
  // The longest sequence: the least of the option, the model's training context and all cells.
  std::int32_t max_sequence_tokens() const;
  std::int32_t n_threads() const { return options_.n_threads; }
  // Whether the bits of a row's keys, values and logits depend on its own past alone, for every
  // weight type that the model has.
  bool is_batch_invariant() const;
  double bytes_per_cell() const;
  // What beside tokens and modules decides the bits of keys and values, as one word.
  std::string execution_name() const;
  const Model& model() const { return model_; }
  Grafter& grafter() { return *grafter_; }

  // Runs `work(ith, nth)` on the compute pool, the caller included, and waits.
  void run_parallel(const std::function<void(int, int)>& work) { grafter_->run_parallel(work); }

  // Our account against itself and against libllama's view of each sequence, holders left out where
  // a sliding window lets libllama drop their last positions.
  void check_invariants() const;

 private:
  struct FreeContext {
    void operator()(llama_context* context) const;
  };
  struct Batch;  // the arrays of a llama_batch

  Engine(Model& model, const EngineOptions& options);
  Status create_context();
  Status check_deterministic() const;
  Status warm_up();
  Status warm_up_step(std::int32_t n_rows);
  std::string find_fault(const StepPlan& plan) const;
  std::string find_row_fault(const StepPlan& plan, std::size_t i) const;
  StepOutcome decode(const StepPlan& plan);
  Result<std::vector<std::int32_t>> positions_by_cell(std::int32_t sequence) const;
  std::int32_t scratch_sequence() const { return options_.max_seqs; }
  void commit(const StepPlan& plan);
  void roll_back(const StepPlan& plan);

  Model& model_;
  EngineOptions options_;
  std::unique_ptr<Grafter> grafter_;
  std::unique_ptr<llama_context, FreeContext> context_;  // freed before the grafter
  std::unique_ptr<Batch> batch_;
  CellLedger cells_;
  SequenceIds ids_;
  SequenceIds holders_;
  std::vector<const float*> logits_;  // by row of the last step; null for rows without output
};

}  // namespace graft
