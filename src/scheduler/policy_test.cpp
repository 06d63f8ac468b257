#include "scheduler/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/pace.h"

namespace graft {
namespace {

std::int32_t count_rows(const SchedulePlan& plan) {
  std::int32_t n = 0;
  for (const PlannedChunk& chunk : plan.chunks) n += chunk.n_tokens;
  return n;
}

// The scheduler's bookkeeping without a model: plays plans and counts what they promise.
class PolicySimulation {
 public:
  struct Request {
    int id = 0;
    std::int32_t n_cached = 0;
    std::int32_t n_pending = 0;
    std::int32_t n_left = 0;  // tokens to generate
    int n_preemptions = 0;
    std::int32_t n_to_report = 0;  // first rows that are reported
    std::int32_t n_reported = 0;   // of those, so far
  };

  PolicySimulation(std::int32_t n_cells, std::int32_t n_sequences, PolicyLimits limits = {})
      : n_cells_(n_cells), n_sequences_(n_sequences), limits_(limits) {}

  void submit(int id, std::int32_t n_prompt, std::int32_t n_generate) {
    waiting_.push_back({id, 0, n_prompt, n_generate, 0});
  }
  // A request that reports on all rows of its prompt but the last.
  void submit_scored(int id, std::int32_t n_prompt) {
    waiting_.push_back({id, 0, n_prompt, 1, 0, n_prompt - 1});
  }
  void cancel(int id) {
    std::erase_if(running_, [&](const Request& r) { return r.id == id; });
    std::erase_if(waiting_, [&](const Request& r) { return r.id == id; });
  }

  SchedulePlan step() {
    std::vector<RunningView> running;
    for (const Request& r : running_) running.push_back({r.n_cached, r.n_pending, reported(r)});
    std::vector<WaitingView> waiting;
    for (const Request& r : waiting_) waiting.push_back({r.n_pending, reported(r)});
    const SchedulePlan plan =
        make_plan({running, waiting, n_free_cells(),
                   n_sequences_ - static_cast<std::int32_t>(running_.size()), n_steps_++},
                  limits_);
    apply(plan);
    return plan;
  }

  std::int32_t n_free_cells() const {
    std::int32_t n = n_cells_;
    for (const Request& r : running_) n -= r.n_cached;
    return n;
  }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  const std::vector<Request>& running() const { return running_; }
  const std::vector<int>& finished() const { return finished_; }
  std::int64_t n_steps() const { return n_steps_; }
  int n_preemptions() const { return n_preemptions_; }

 private:
  static ReportedRows reported(const Request& r) {
    const std::int32_t first = std::max(r.n_cached, r.n_reported);
    return {first - r.n_cached, std::max(0, r.n_to_report - first)};
  }

  void apply(const SchedulePlan& plan) {
    for (const std::int32_t i : plan.preempted) {
      ASSERT_EQ(i, static_cast<std::int32_t>(running_.size()) - 1) << "youngest first";
      Request request = running_.back();
      running_.pop_back();
      request.n_pending += std::exchange(request.n_cached, 0);
      ++request.n_preemptions;
      ++n_preemptions_;
      waiting_.push_front(request);
    }
    for (int i = 0; i < plan.n_admitted; ++i) {
      running_.push_back(waiting_.front());
      waiting_.pop_front();
    }
    ASSERT_LE(running_.size(), static_cast<std::size_t>(n_sequences_));
    ASSERT_LE(count_rows(plan), limits_.n_rows);
    ASSERT_LE(count_rows(plan), n_free_cells());
    std::int32_t n_reported = 0;
    for (const PlannedChunk& chunk : plan.chunks) {
      Request& r = running_.at(static_cast<std::size_t>(chunk.request));
      ASSERT_GT(chunk.n_tokens, 0);
      ASSERT_LE(chunk.n_tokens, r.n_pending);
      const std::int32_t n_known = std::min(r.n_cached + chunk.n_tokens, r.n_to_report);
      n_reported += std::max(0, n_known - r.n_reported);
      r.n_reported = std::max(r.n_reported, n_known);
      r.n_cached += chunk.n_tokens;
      r.n_pending -= chunk.n_tokens;
      if (r.n_pending > 0) continue;
      --r.n_left;
      r.n_pending = 1;
    }
    ASSERT_LE(n_reported, limits_.n_reported_rows);
    for (const Request& r : running_) {
      if (r.n_left == 0) finished_.push_back(r.id);
    }
    std::erase_if(running_, [](const Request& r) { return r.n_left == 0; });
  }

  std::int32_t n_cells_;
  std::int32_t n_sequences_;
  PolicyLimits limits_;
  std::vector<Request> running_;
  std::deque<Request> waiting_;
  std::vector<int> finished_;
  std::int64_t n_steps_ = 0;
  int n_preemptions_ = 0;
};

TEST(Policy, ABurstIsAdmittedAtOnceAndPrefilledInFullSteps) {
  PolicySimulation simulation(4096, 8);
  for (int id = 0; id < 10; ++id) simulation.submit(id, 96, 4);
  const SchedulePlan first = simulation.step();
  EXPECT_EQ(first.n_admitted, 8);  // as many as there are sequences
  EXPECT_EQ(count_rows(first), 512);
  while (!simulation.idle()) simulation.step();
  EXPECT_EQ(simulation.finished().size(), 10U);
  EXPECT_EQ(simulation.n_preemptions(), 0);
}

TEST(Policy, DecodeRowsRunInEveryStepBesideALongPrompt) {
  PolicyLimits limits;
  limits.n_prefill_beside_decode = 16;
  PolicySimulation simulation(8192, 4, limits);
  simulation.submit(0, 1, 100);
  simulation.submit(1, 1, 100);
  simulation.step();
  simulation.submit(2, 800, 1);
  for (int step = 0; step < 40; ++step) {
    const SchedulePlan plan = simulation.step();
    ASSERT_EQ(count_rows(plan), 2 + 16);
    ASSERT_EQ(plan.chunks[0], (PlannedChunk{0, 1}));
    ASSERT_EQ(plan.chunks[1], (PlannedChunk{1, 1}));
  }
}

TEST(Policy, WithoutDecodeRowsAPromptGetsTheWholeStep) {
  PolicyLimits limits;
  limits.n_prefill_beside_decode = 8;
  PolicySimulation simulation(8192, 4, limits);
  simulation.submit(0, 2000, 1);
  EXPECT_EQ(count_rows(simulation.step()), 512);
}

TEST(Policy, AShortPromptPassesALongOneThatStillGetsHalf) {
  PolicyLimits limits;
  limits.n_prefill_beside_decode = 8;
  PolicySimulation simulation(8192, 4, limits);
  simulation.submit(0, 1, 1000);
  simulation.submit(1, 4000, 1);
  simulation.step();
  simulation.submit(2, 64, 1);
  const std::int64_t before = simulation.n_steps();
  while (simulation.finished().empty()) simulation.step();
  EXPECT_EQ(simulation.finished().front(), 2);
  const std::int64_t n_steps = simulation.n_steps() - before;
  EXPECT_LE(n_steps, 2 * 64 / 8 + 2);
  EXPECT_GE(simulation.running()[1].n_cached, 8 * (n_steps / 2));
}

TEST(Policy, WhenMemoryRunsOutTheYoungestIsPreemptedAndTheOldestAdvances) {
  PolicyLimits limits;
  limits.n_headroom_cells = 0;
  PolicySimulation simulation(100, 4, limits);
  simulation.submit(0, 40, 50);
  simulation.submit(1, 40, 50);
  int n_steps = 0;
  while (!simulation.idle() && ++n_steps < 1000) simulation.step();
  EXPECT_EQ(simulation.finished(), (std::vector<int>{0, 1}));
  EXPECT_EQ(simulation.n_preemptions(), 1);  // once, not back and forth
}

TEST(Policy, APromptWithoutCellsPreemptsTheYoungerPrompt) {
  const std::vector<RunningView> running = {{60, 20}, {40, 30}};
  const SchedulePlan plan = make_plan({running, {}, 0, 2, 0}, {});
  EXPECT_EQ(plan.preempted, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(plan.chunks, (std::vector<PlannedChunk>{{0, 20}}));
}

TEST(Policy, ALargeRequestIsNotOvertaken) {
  PolicySimulation simulation(1000, 8);
  simulation.submit(0, 600, 50);
  simulation.step();
  simulation.submit(1, 900, 1);  // waits for the first to end
  for (int id = 2; id < 40; ++id) simulation.submit(id, 10, 5);
  while (simulation.running().empty() || simulation.running()[0].id != 1) simulation.step();
  EXPECT_EQ(simulation.finished(), (std::vector<int>{0}));
  while (!simulation.idle()) simulation.step();
  EXPECT_EQ(simulation.finished().size(), 40U);
}

TEST(Policy, CancelledRequestsMakeRoomInTheNextStep) {
  PolicySimulation simulation(200, 2);
  simulation.submit(0, 150, 10);
  simulation.submit(1, 150, 10);
  simulation.step();
  EXPECT_EQ(simulation.running().size(), 1U);
  simulation.cancel(0);
  EXPECT_EQ(simulation.step().n_admitted, 1);
  EXPECT_EQ(simulation.running()[0].id, 1);
}

TEST(Policy, HeadroomKeepsAnAdmittedRequestFromBeingPreemptedAtOnce) {
  const std::vector<RunningView> running = {{50, 1}};
  const std::vector<WaitingView> waiting = {{40}};
  PolicyLimits limits;
  limits.n_headroom_cells = 32;
  EXPECT_EQ(make_plan({running, waiting, 72, 3, 0}, limits).n_admitted, 0);
  EXPECT_EQ(make_plan({running, waiting, 73, 3, 0}, limits).n_admitted, 1);
  // A lone request needs none: its tokens fit or they never will.
  EXPECT_EQ(make_plan({{}, waiting, 40, 3, 0}, limits).n_admitted, 1);
}

TEST(Policy, AChunkEndsWhereTheReportedRowsAreUsedUp) {
  PolicyLimits limits;
  limits.n_reported_rows = 64;
  // All 200 rows but the last are reported; the second prompt reports 3 rows behind its 10th.
  const std::vector<RunningView> running = {{0, 200, {0, 199}}, {5, 100, {10, 3}}};
  EXPECT_EQ(make_plan({running, {}, 4096, 0, 0}, limits).chunks,
            (std::vector<PlannedChunk>{{0, 64}, {1, 10}}));
  // The other way round the second takes what it needs.
  EXPECT_EQ(make_plan({running, {}, 4096, 0, 1}, limits).chunks,
            (std::vector<PlannedChunk>{{1, 100}, {0, 61}}));
  // Rows that were reported before the request lost its cells need no second report.
  const std::vector<RunningView> again = {{0, 200, {150, 49}}};
  EXPECT_EQ(make_plan({again, {}, 4096, 0, 0}, limits).chunks,
            (std::vector<PlannedChunk>{{0, 200}}));
  limits.n_reported_rows = 48;
  EXPECT_EQ(make_plan({again, {}, 4096, 0, 0}, limits).chunks,
            (std::vector<PlannedChunk>{{0, 198}}));
}

TEST(Policy, PromptsThatReportNothingPassThoseThatMustWait) {
  PolicyLimits limits;
  limits.n_reported_rows = 64;
  const std::vector<RunningView> running = {{0, 100, {0, 99}}, {0, 100, {0, 99}}, {0, 30}};
  EXPECT_EQ(make_plan({running, {}, 4096, 0, 0}, limits).chunks,
            (std::vector<PlannedChunk>{{0, 64}, {2, 30}}));
  const std::vector<WaitingView> waiting = {{100, {0, 99}}, {20}};
  EXPECT_EQ(make_plan({{}, waiting, 4096, 2, 0}, limits).chunks,
            (std::vector<PlannedChunk>{{0, 64}, {1, 20}}));
}

TEST(Policy, DecodeRowsAndTheirShareHoldBesideScoring) {
  PolicyLimits limits;
  limits.n_prefill_beside_decode = 24;
  PolicySimulation simulation(8192, 4, limits);
  simulation.submit(0, 1, 100);
  simulation.step();
  simulation.submit_scored(1, 400);
  for (int step = 0; step < 16; ++step) {
    const SchedulePlan plan = simulation.step();
    ASSERT_EQ(plan.chunks, (std::vector<PlannedChunk>{{0, 1}, {1, 24}}));
  }
}

TEST(Policy, TheChoicesOfAGroupAreAdmittedTogetherAndOneComputesThePrompt) {
  const std::vector<WaitingView> waiting = {{.n_pending = 20, .n_choices = 3}, {.n_pending = 5}};
  EXPECT_EQ(make_plan({{}, waiting, 1000, 2, 0}, {}).n_admitted, 0);
  const SchedulePlan plan = make_plan({{}, waiting, 1000, 4, 0}, {});
  EXPECT_EQ(plan.n_admitted, 2);
  EXPECT_EQ(plan.chunks, (std::vector<PlannedChunk>{{0, 20}, {3, 5}}));
  EXPECT_EQ(make_plan({{}, waiting, 1000, 3, 0}, {}).n_admitted, 1);
  // Every choice needs a cell of its own behind the prompt.
  EXPECT_EQ(make_plan({{}, waiting, 21, 4, 0}, {}).n_admitted, 0);
  EXPECT_EQ(make_plan({{}, waiting, 22, 4, 0}, {}).n_admitted, 1);
}

TEST(Policy, TakingOverCachedCellsMakesThemNoLongerFree) {
  const std::vector<WaitingView> waiting = {{.n_pending = 10, .n_idle_cells = 90}};
  EXPECT_EQ(make_plan({{}, waiting, 99, 4, 0}, {}).n_admitted, 0);
  const SchedulePlan plan = make_plan({{}, waiting, 100, 4, 0}, {});
  EXPECT_EQ(plan.chunks, (std::vector<PlannedChunk>{{0, 10}}));
}

TEST(Policy, BlockedRequestsGetNoRowsButKeepTheirPlace) {
  const std::vector<RunningView> running = {{50, 1}, {10, 40, {}, true}, {0, 1, {}, true}, {30, 7}};
  const SchedulePlan plan = make_plan({running, {}, 100, 0, 0}, {});
  EXPECT_EQ(plan.chunks, (std::vector<PlannedChunk>{{0, 1}, {3, 7}}));
  const std::vector<WaitingView> waiting = {{.n_pending = 9, .is_blocked = true}};
  EXPECT_EQ(make_plan({{}, waiting, 100, 1, 0}, {}).n_admitted, 1);
  EXPECT_TRUE(make_plan({{}, waiting, 100, 1, 0}, {}).chunks.empty());
}

TEST(Policy, EverythingFinishesUnderRandomLoad) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    PolicyLimits limits;
    limits.n_prefill_beside_decode = 8;
    limits.n_rows = 64;
    limits.n_reported_rows = 1 + static_cast<std::int32_t>(seed);
    PolicySimulation simulation(300, 16, limits);
    int n_submitted = 0;
    for (int step = 0; step < 4000 && (n_submitted < 60 || !simulation.idle()); ++step) {
      if (n_submitted < 60 && random() % 4 == 0) {
        const auto n_prompt = static_cast<std::int32_t>(1 + random() % 150);
        if (random() % 3 == 0) {
          simulation.submit_scored(n_submitted++, n_prompt);
        } else {
          simulation.submit(n_submitted++, n_prompt, static_cast<std::int32_t>(1 + random() % 140));
        }
      }
      simulation.step();
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(simulation.finished().size(), 60U) << "seed " << seed;
  }
}

TEST(Pace, FillsASmallStepBeforeItKnowsAnything) {
  EXPECT_EQ(Pace(2).prefill_share({1, 1, 1}), 31);
}

TEST(Pace, KeepsTheGapUnderTheFactor) {
  Pace pace(2);
  for (int i = 0; i < 50; ++i) pace.record(8, 0, 20);
  for (int i = 0; i < 50; ++i) pace.record(8, 16, 20 + 16 * 1.0);
  EXPECT_EQ(pace.prefill_share({8, 8, 8}), 20);  // 20 ms for prompt rows of 1 ms: 28 rows
  Pace generous(10);
  for (int i = 0; i < 50; ++i) generous.record(8, 0, 20);
  for (int i = 0; i < 50; ++i) generous.record(8, 16, 36);
  EXPECT_EQ(generous.prefill_share({8, 8, 8}), 120);
}

TEST(Pace, NeverStopsPrefillAndSurvivesAHiccup) {
  Pace pace(2);
  for (int i = 0; i < 50; ++i) pace.record(1, 0, 1);
  for (int i = 0; i < 50; ++i) pace.record(1, 8, 100);
  EXPECT_EQ(pace.prefill_share({1, 1, 1}), 7);
  for (int i = 0; i < 50; ++i) pace.record(8, 0, 2);
  EXPECT_EQ(pace.prefill_share({8, 8, 8}), 4);
  EXPECT_EQ(pace.prefill_share({7, 7, 7}), 5);
  Pace steady(2);
  for (int i = 0; i < 50; ++i) steady.record(1, 0, 10);
  for (int i = 0; i < 50; ++i) steady.record(1, 32, 20);
  EXPECT_EQ(steady.prefill_share({1, 1, 1}), 31);
  steady.record(1, 0, 10000);
  EXPECT_LE(steady.prefill_share({1, 1, 1}), 64);
}

TEST(Pace, StreamsThatWillDecodeSoonCountAsIfTheyDid) {
  Pace pace(2);
  for (int i = 0; i < 50; ++i) pace.record(1, 0, 5);
  for (int i = 0; i < 50; ++i) pace.record(1, 16, 5 + 16 * 0.5);
  EXPECT_EQ(pace.prefill_share({1, 1, 1}), 7);
  EXPECT_EQ(pace.prefill_share({8, 4, 4}), 16);    // 2 * (5 + 4 * 0.5) - 5 = 9 ms: 20 of 22 rows
  EXPECT_EQ(pace.prefill_share({8, 1, 1}), 191);   // seven wait, one decodes: 192 of 229 rows
  EXPECT_EQ(pace.prefill_share({8, 4, 0}), 92);    // 4 * 2 * 7 - 5 = 51 ms: 96 of 106 rows
  EXPECT_EQ(pace.prefill_share({32, 1, 0}), 511);  // the burst goes first
  EXPECT_EQ(pace.prefill_share({8, 4, 2}), 44);    // 2 * 2 * 7 - 5 = 23 ms: 48 of 50 rows
  for (int i = 0; i < 50; ++i) pace.record(8, 0, 12);
  EXPECT_EQ(pace.prefill_share({8, 4, 4}), 28);  // 2 * (12 + 4 * 0.5) - 12 = 16 ms: 32 of 36 rows
}

// Streams that have only begun are read as well: a long prompt does not stop them.
TEST(Pace, OnePromptBesideStreamsThatHaveJustBegun) {
  Pace pace(2);
  EXPECT_EQ(pace.prefill_share({9, 8, 0}), 504);  // nothing is known
  for (int i = 0; i < 50; ++i) pace.record(8, 0, 12);
  for (int i = 0; i < 50; ++i) pace.record(8, 16, 12 + 16 * 0.5);
  EXPECT_EQ(pace.prefill_share({9, 8, 0}), pace.prefill_share({9, 8, 8}));
  EXPECT_EQ(pace.prefill_share({9, 8, 0}), 24);  // 2 * 12.5 - 12 = 13 ms: 32 of 34 rows
}

}  // namespace
}  // namespace graft
