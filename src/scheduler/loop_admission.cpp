// The part of the loop that decides who computes: the numbers for the policy, admission and
// preemption, and what requests take from the prefix cache and leave in it.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "scheduler/loop.h"

namespace graft {

namespace {

// What is cached has no logits and no states to report.
bool may_read(const LiveRequest& request) {
  return request.cache_rules().may_read && request.can_reuse_prefix();
}

}  // namespace

bool Loop::is_blocked(const LiveRequest& request) const {
  return request.leader() != nullptr || prefix_cache_.is_restoring(request.sequence());
}

std::int64_t Loop::n_waiting_choices() const {
  std::int64_t n = 0;
  for (const WaitingGroup& group : waiting_) n += static_cast<std::int64_t>(group.choices.size());
  return n;
}

std::vector<RunningView> Loop::view_running(StreamCounts& counts) {
  std::vector<RunningView> running;
  for (const auto& request : running_) {
    const bool follows = request->leader() != nullptr;
    running.push_back({.n_own_cells = engine_.cells().n_own(request->sequence()),
                       .n_pending = follows ? 1 : request->n_pending(),
                       .reported = request->reported_rows(),
                       .is_blocked = is_blocked(*request)});
    if (running.back().is_blocked || request->n_pending() != 1) continue;
    counts.n_decode += 1;
    counts.n_settled += request->n_generated() >= kSettledTokens ? 1 : 0;
  }
  counts.n_streams += static_cast<std::int32_t>(running.size());
  return running;
}

// Looks up what is cached for the groups that this step might admit.
std::vector<WaitingView> Loop::view_waiting(StreamCounts& counts) {
  std::vector<WaitingView> waiting;
  std::int32_t n_left = engine_.n_free_sequences();
  for (WaitingGroup& group : waiting_) {
    const auto n_choices = static_cast<std::int32_t>(group.choices.size());
    if (n_choices > n_left) break;
    n_left -= n_choices;
    const LiveRequest& first = *group.choices.front();
    // The last token is computed in any case: its logits decide the next one.
    group.match = may_read(first) ? prefix_cache_.find(first.prefix_path(first.n_tokens() - 1))
                                  : PrefixMatch{};
    waiting.push_back({.n_pending = first.n_tokens() - group.match.n_hot,
                       .reported = first.reported_rows(),
                       .n_choices = n_choices,
                       .n_idle_cells = prefix_cache_.n_idle(group.match),
                       .is_blocked = group.match.n_warm_blocks > 0});
    counts.n_streams += n_choices;
  }
  return waiting;
}

SchedulePlan Loop::plan() {
  StreamCounts counts;
  const std::vector<RunningView> running = view_running(counts);
  const std::vector<WaitingView> waiting = view_waiting(counts);
  PolicyLimits limits;
  limits.n_rows = options_.max_rows > 0 ? options_.max_rows : engine_.max_rows();
  limits.n_prefill_beside_decode =
      options_.n_prefill_beside_decode.value_or(pace_.prefill_share(counts));
  limits.n_headroom_cells = options_.n_headroom_cells;
  limits.n_reported_rows = engine_.max_reported_rows();
  return make_plan({.running = running,
                    .waiting = waiting,
                    .n_free_cells = engine_.cells().n_free() + engine_.cells().n_idle(),
                    .n_free_sequences = engine_.n_free_sequences(),
                    .step = n_steps_++},
                   limits);
}

// Gives the plan's requests their sequences and cells, and takes back those of preempted ones.
void Loop::reserve(const SchedulePlan& plan) {
  for (std::size_t i = 0; i < plan.preempted.size(); ++i) preempt_youngest();
  for (std::int32_t i = 0; i < plan.n_admitted; ++i) {
    WaitingGroup group = std::move(waiting_.front());
    waiting_.pop_front();
    admit(std::move(group));
  }
  std::int32_t n_rows = 0;
  for (const PlannedChunk& chunk : plan.chunks) n_rows += chunk.n_tokens;
  restore_cells(n_rows);
  prefix_cache_.make_room(n_rows);
}

// Its cells stay as long as nobody needs them, so that going on costs little.
void Loop::preempt_youngest() {
  std::unique_ptr<LiveRequest> youngest = std::move(running_.back());
  running_.pop_back();
  cache_cells(*youngest);
  prefix_cache_.cancel_restore(youngest->sequence());
  engine_.release_sequence(youngest->sequence());
  youngest->preempt();
  WaitingGroup group;
  group.choices.push_back(std::move(youngest));
  waiting_.push_front(std::move(group));
  ServingCounters::add(counters_.n_preemptions);
}

void Loop::admit(WaitingGroup group) {
  const LiveRequest* first = nullptr;
  for (auto& request : group.choices) {
    const std::optional<std::int32_t> sequence = engine_.acquire_sequence();
    GRAFT_CHECK(sequence.has_value());
    if (!request->was_started() && !request->is_trial()) --n_waiting_;
    known_adapters_.add(request->attachments());
    if (first != nullptr) {
      request->start(*sequence, 0, 0);
      request->follow(first);
    } else if (may_read(*request)) {
      const PrefixPath path = request->prefix_path(request->n_tokens() - 1);
      const std::int32_t n_shared = prefix_cache_.attach(path, group.match, *sequence);
      const bool is_usable = n_shared == group.match.n_hot;
      const std::int32_t n_found = is_usable ? group.match.n_tokens : 0;
      request->start(*sequence, n_shared, std::min(n_found, request->n_prompt()));
    } else {
      request->start(*sequence, 0, 0);
    }
    if (first == nullptr) first = request.get();
    running_.push_back(std::move(request));
  }
}

// Copies cached cells back, for a while. Those planned for the step's rows are not touched.
void Loop::restore_cells(std::int32_t n_reserved) {
  prefix_cache_.begin_copies();
  for (const auto& request : running_) {
    if (!prefix_cache_.is_restoring(request->sequence())) continue;
    const RestoreProgress progress = prefix_cache_.restore(request->sequence(), n_reserved);
    request->advance(progress.n_tokens);
    if (progress.kind != RestoreProgress::kBroken) continue;
    engine_.truncate_sequence(request->sequence(), 0);
    request->lose_cached();
  }
}

void Loop::cache_cells(const LiveRequest& request) {
  if (!request.cache_rules().may_write || is_blocked(request)) return;
  const std::int32_t n_tokens =
      may_cache_generated_ ? request.n_cached() : std::min(request.n_cached(), request.n_prompt());
  if (n_tokens == 0) return;
  for (const RoleRun& run : request.roles()) {
    for (const Attachment& attachment : request.attachments().attachments) {
      if (attachment.start_position > run.begin) continue;
      prefix_cache_.add_dependency(run.role, attachment.module->resident);
    }
  }
  prefix_cache_.insert(request.prefix_path(n_tokens), request.sequence());
}

void Loop::share_prompt(const LiveRequest& leader, std::vector<Output>& outputs) {
  const std::int32_t last = leader.n_tokens() - 1;
  for (const auto& request : running_) {
    if (request->leader() != &leader || request->is_over()) continue;
    engine_.copy_sequence(leader.sequence(), request->sequence(), leader.n_cached());
    request->advance(leader.n_cached());
    request->follow(nullptr);
    GRAFT_CHECK(outputs.back().position == last);
    outputs.push_back({request.get(), last, outputs.back().logits});
  }
}

// When a leader ends before its prompt does, the next choice goes on from there.
void Loop::replace_leader(const LiveRequest& leader) {
  LiveRequest* next = nullptr;
  for (const auto& request : running_) {
    if (request->leader() != &leader || request->is_over()) continue;
    request->follow(next);
    if (next != nullptr) continue;
    next = request.get();
    const bool is_whole = leader.outcome() != LiveRequest::Outcome::kFailed &&
                          !prefix_cache_.is_restoring(leader.sequence());
    const std::int32_t n_shared = is_whole ? std::min(leader.n_cached(), next->n_tokens() - 1) : 0;
    engine_.copy_sequence(leader.sequence(), next->sequence(), n_shared);
    if (n_shared > 0 && engine_.has_window(next->sequence(), n_shared)) {
      next->advance(n_shared);
    } else {
      engine_.truncate_sequence(next->sequence(), 0);
    }
  }
}

void Loop::release(const LiveRequest& request) {
  replace_leader(request);
  if (request.outcome() != LiveRequest::Outcome::kFailed) cache_cells(request);
  prefix_cache_.cancel_restore(request.sequence());
  engine_.release_sequence(request.sequence());
}

}  // namespace graft
