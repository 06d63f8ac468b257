// The scheduling policy: which requests the next step serves, with how many tokens each. A pure
// function of plain numbers: no model, no clock, no state. Any thread may call it.
//
// Every running request has tokens that are in the KV memory (cached) and tokens that are not yet
// (pending, at least one). One pending token makes a decode row; more are a prompt that is
// prefilled in chunks, or the past of a preempted request that is computed again.
//
// Rules, in this order:
//  - Every decode row runs in every step. When cells run out the youngest request is preempted, so
//    the oldest always advances and no two requests can push each other out for ever.
//  - Waiting groups are admitted strictly in order, so a large one cannot be overtaken; one is
//    admitted when its tokens fit beside all that the running ones still need. The choices of a
//    group (`n` > 1) come in together; the first computes their prompt.
//  - Cells that only the prefix cache holds count as free: whoever needs them gets them. A request
//    that takes over cached tokens need not compute them, but then their cells are not free.
//  - Rows left over prefill. Beside decode rows they are capped by `n_prefill_beside_decode`. Every
//    other step favours the oldest prompt, the steps between favour the one nearest to its end:
//    short prompts pass long ones, and long ones still get half of the work.
//  - Some prompts report on their rows (log-probabilities, states). Each such row costs a row of
//    logits, so all requests together report at most `n_reported_rows` per step; a chunk ends where
//    that is used up, and prompts that report nothing pass those that must wait for it.
//
// The cost is linear in the running requests and does not depend on how many wait.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace graft {

// Which pending rows a request reports on, beside the one of its last token: `n` from the
// `first`-th pending one on.
struct ReportedRows {
  std::int32_t first = 0;
  std::int32_t n = 0;
};

struct RunningView {
  std::int32_t n_own_cells = 0;  // that preempting it would free
  std::int32_t n_pending = 1;    // >= 1
  ReportedRows reported = {};
  bool is_blocked = false;  // it waits for cells or for another's prompt: no rows for it
};

struct WaitingView {
  std::int32_t n_pending = 1;  // tokens to compute or to restore, of the first choice; >= 1
  ReportedRows reported = {};
  std::int32_t n_choices = 1;
  std::int32_t n_idle_cells = 0;  // cached cells that it would take over and that count as free now
  bool is_blocked = false;        // it must wait for cells after it is admitted
};

struct PolicyView {
  std::span<const RunningView> running;  // oldest first
  std::span<const WaitingView> waiting;  // the first groups, in order; no more choices are needed
                                         // than sequences are free
  std::int32_t n_free_cells = 0;         // those that only the prefix cache holds included
  std::int32_t n_free_sequences = 0;
  std::int64_t step = 0;  // counts up; its parity decides whom the prefill favours
};

struct PolicyLimits {
  std::int32_t n_rows = 512;                  // of one step; at least the number of sequences
  std::int32_t n_prefill_beside_decode = 32;  // see Pace
  // Cells kept free per running request when another is admitted, so that it is not preempted at
  // once by the others' next tokens.
  std::int32_t n_headroom_cells = 32;
  std::int32_t n_reported_rows = 64;  // of one step, all requests together; >= 1
};

// A run of tokens of one request.
struct PlannedChunk {
  std::int32_t request = 0;  // index into `running`; admitted choices follow after the last one
  std::int32_t n_tokens = 0;

  friend bool operator==(const PlannedChunk&, const PlannedChunk&) = default;
};

struct SchedulePlan {
  std::vector<std::int32_t> preempted;  // indices into `running`, youngest first
  std::int32_t n_admitted = 0;          // groups from the front of `waiting`
  std::vector<PlannedChunk> chunks;     // at most one per request, n_rows tokens together
};

SchedulePlan make_plan(const PolicyView& view, const PolicyLimits& limits);

}  // namespace graft
