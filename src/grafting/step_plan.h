// StepPlan: what one llama_decode will compute and which modules act on which of its rows. A pure
// value, made by the scheduler's policy and the engine, independent of how the module computation
// is emitted. Row i of the plan is token i of the batch.
//
// Invariants (the grafting backend refuses a step that breaks them): tokens of one sequence are
// contiguous, one sequence per token, positions of a sequence increase by one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/request.h"
#include "modules/residency/resident_adapter.h"

namespace graft {

struct PlannedAttachment {
  const ResidentAdapter* adapter = nullptr;  // kept alive by the request's lease during the step
  float scale = 1.0F;                        // multiplies each term's own scale
  std::int32_t start_position = 0;           // rows before that position are untouched
};

struct PlannedRow {
  TokenId token = 0;
  std::int32_t position = 0;
  std::int32_t sequence = 0;
  bool is_output = false;  // among the rows that the graph computes to their logits
  std::int32_t set = -1;   // index into StepPlan::sets; -1 = the base alone
  bool is_tapped = false;  // its final state is copied out (Grafter::state); needs is_output
};

struct StepPlan {
  std::vector<PlannedRow> rows;
  std::vector<std::vector<PlannedAttachment>> sets;

  void clear() {
    rows.clear();
    sets.clear();
  }
};

}  // namespace graft
