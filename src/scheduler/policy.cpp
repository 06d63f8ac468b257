#include "scheduler/policy.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace graft {

namespace {

struct Pending {
  std::int32_t n_tokens = 0;
  ReportedRows reported;
  bool is_blocked = false;

  bool decodes() const { return n_tokens == 1 && !is_blocked; }
  // Reported rows among the first `n`.
  std::int32_t n_reported(std::int32_t n) const {
    return std::clamp(n - reported.first, 0, reported.n);
  }
  // The most tokens from the first one on that report on no more than `n_rows`.
  std::int32_t reporting_at_most(std::int32_t n_rows) const {
    return reported.n <= n_rows ? n_tokens : std::min(n_tokens, reported.first + n_rows);
  }
};

// The plan while it is made: what is left of rows and cells.
struct Draft {
  const PolicyView& view;
  const PolicyLimits& limits;
  SchedulePlan plan;
  std::vector<Pending> pending;  // of the requests that stay, then of the admitted ones
  std::int32_t n_free_cells = 0;
};

std::int32_t count_decode_rows(const std::vector<Pending>& pending) {
  return static_cast<std::int32_t>(
      std::count_if(pending.begin(), pending.end(), [](const Pending& p) { return p.decodes(); }));
}

// Frees cells until every decode row has one, or a lone prompt can go on.
void preempt_youngest(Draft& draft) {
  std::int32_t n_decode = count_decode_rows(draft.pending);
  while (draft.pending.size() > 1 && draft.n_free_cells < std::max(1, n_decode)) {
    const std::size_t youngest = draft.pending.size() - 1;
    n_decode -= draft.pending.back().decodes() ? 1 : 0;
    draft.n_free_cells += draft.view.running[youngest].n_own_cells;
    draft.pending.pop_back();
    draft.plan.preempted.push_back(static_cast<std::int32_t>(youngest));
  }
}

// The first choice computes the prompt; the others wait for it and then share its cells.
void add_group(Draft& draft, const WaitingView& group) {
  draft.pending.push_back({group.n_pending, group.reported, group.is_blocked});
  for (std::int32_t i = 1; i < group.n_choices; ++i) draft.pending.push_back({1, {}, true});
  draft.n_free_cells -= group.n_idle_cells;
  ++draft.plan.n_admitted;
}

// Admitting in the step of a preemption would hand the freed cells to the wrong request.
void admit(Draft& draft) {
  if (!draft.plan.preempted.empty()) return;
  std::int64_t n_needed = 0;
  std::int32_t n_free_sequences = draft.view.n_free_sequences;
  for (const Pending& pending : draft.pending) n_needed += pending.n_tokens;
  for (const WaitingView& group : draft.view.waiting) {
    const auto n_beside = static_cast<std::int64_t>(draft.pending.size());
    const std::int64_t n_headroom = n_beside * draft.limits.n_headroom_cells;
    const std::int64_t n_new = group.n_pending + group.n_choices - 1;
    if (group.n_choices > n_free_sequences) break;
    if (n_needed + n_new + group.n_idle_cells + n_headroom > draft.n_free_cells) break;
    n_needed += n_new;
    n_free_sequences -= group.n_choices;
    add_group(draft, group);
  }
}

void add_chunk(Draft& draft, std::size_t request, std::int32_t n_tokens) {
  // Preempted requests are the youngest ones, and then nobody is admitted: indices do not shift.
  draft.plan.chunks.push_back({static_cast<std::int32_t>(request), n_tokens});
  draft.n_free_cells -= n_tokens;
}

// Requests with a prompt to compute, in the order in which this step serves them.
std::vector<std::size_t> prefill_order(const Draft& draft) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < draft.pending.size(); ++i) {
    if (draft.pending[i].n_tokens > 1 && !draft.pending[i].is_blocked) order.push_back(i);
  }
  if (order.size() > 1 && draft.view.step % 2 != 0) {
    const auto nearest =
        std::min_element(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
          return draft.pending[a].n_tokens < draft.pending[b].n_tokens;
        });
    std::rotate(order.begin(), nearest, nearest + 1);
  }
  return order;
}

void share_out_rows(Draft& draft) {
  std::int32_t n_decode = 0;
  for (std::size_t i = 0; i < draft.pending.size(); ++i) {
    if (!draft.pending[i].decodes() || draft.n_free_cells == 0) continue;
    add_chunk(draft, i, 1);
    ++n_decode;
  }
  std::int32_t n_left = draft.limits.n_rows - n_decode;
  if (n_decode > 0) n_left = std::min(n_left, draft.limits.n_prefill_beside_decode);
  std::int32_t n_reported_left = draft.limits.n_reported_rows;
  for (const std::size_t i : prefill_order(draft)) {
    const Pending& pending = draft.pending[i];
    const std::int32_t n_tokens =
        std::min({n_left, draft.n_free_cells, pending.reporting_at_most(n_reported_left)});
    if (n_tokens <= 0) continue;
    add_chunk(draft, i, n_tokens);
    n_left -= n_tokens;
    n_reported_left -= pending.n_reported(n_tokens);
  }
}

}  // namespace

SchedulePlan make_plan(const PolicyView& view, const PolicyLimits& limits) {
  Draft draft{view, limits, {}, {}, view.n_free_cells};
  for (const RunningView& request : view.running) {
    draft.pending.push_back({request.n_pending, request.reported, request.is_blocked});
  }
  preempt_youngest(draft);
  admit(draft);
  share_out_rows(draft);
  return std::move(draft.plan);
}

}  // namespace graft
