#include "metrics/serving_counters.h"

#include <gtest/gtest.h>

#include "metrics/module_presence.h"

namespace graft {
namespace {

TEST(ServingCounters, StepTimesFallIntoTheirBuckets) {
  ServingCounters counters;
  counters.record_step({1000, 3});     // <= 1 ms
  counters.record_step({1001, 8});     // <= 2 ms
  counters.record_step({9000000, 9});  // beyond the last bound
  const ServingSnapshot snapshot = counters.snapshot();
  EXPECT_EQ(snapshot.n_steps, 3);
  EXPECT_EQ(snapshot.step_time_us.sum, 9002001);
  EXPECT_EQ(snapshot.step_time_us.counts[0], 1);
  EXPECT_EQ(snapshot.step_time_us.counts[1], 1);
  EXPECT_EQ(snapshot.step_time_us.counts.back(), 1);
  EXPECT_EQ(snapshot.step_tokens.sum, 20);
  EXPECT_EQ(snapshot.step_tokens.counts[1], 2);  // 2 to 8 tokens
}

TEST(ServingCounters, ARequestCountsForEachOfItsModules) {
  ServingCounters counters;
  const std::vector<ModuleSeries*> both = {&counters.modules().series_of("a"),
                                           &counters.modules().series_of("b")};
  const std::vector<ModuleSeries*> one = {both[0]};
  counters.record_token({true, 4000}, both);
  counters.record_token({false, 2000}, both);
  counters.record_token({true, 6000}, one);
  RequestRecord request;
  request.was_started = true;
  request.n_prompt_tokens = 5;
  counters.record_end(request, both);
  request.outcome = RequestRecord::Outcome::kFailed;
  counters.record_end(request, one);
  EXPECT_EQ(both[0]->n_generated_tokens, 3);
  EXPECT_EQ(both[1]->n_generated_tokens, 2);
  EXPECT_EQ(both[0]->first_token_us.snapshot().sum, 10000);
  EXPECT_EQ(both[0]->n_prompt_tokens, 10);
  EXPECT_EQ(both[0]->n_failed, 1);
  EXPECT_EQ(both[1]->n_stopped, 1);
  const ServingSnapshot snapshot = counters.snapshot();
  EXPECT_EQ(snapshot.n_generated_tokens, 3);
  EXPECT_EQ(snapshot.n_finished, 1);
  EXPECT_EQ(snapshot.n_failed, 1);
  EXPECT_EQ(snapshot.request_us.n_values(), 1);  // failed ones have no latency
}

TEST(ModuleTable, NamesAreBoundedAndTheBaseIsNotOne) {
  ModuleTable table;
  for (std::size_t i = 0; i < ModuleTable::kMaxNames; ++i) table.series_of(std::to_string(i));
  ModuleSeries& other = table.series_of("one too many");
  EXPECT_EQ(&table.series_of("another"), &other);
  EXPECT_NE(&table.series_of("0"), &other);
  EXPECT_NE(&table.series_of(ModuleTable::kBaseName), &other);
  EXPECT_EQ(table.all().size(), ModuleTable::kMaxNames + 2);
}

TEST(ModulePresence, WaitsThenRunsThenIsGone) {
  ModuleSeries series;
  {
    ModulePresence presence({&series});
    EXPECT_EQ(series.n_waiting, 1);
    presence.run();
    ModulePresence moved = std::move(presence);
    moved.run();
    EXPECT_EQ(series.n_waiting, 0);
    EXPECT_EQ(series.n_running, 1);
    moved.wait();
    EXPECT_EQ(series.n_waiting, 1);
    moved = ModulePresence({&series});
    EXPECT_EQ(series.n_waiting, 1);
  }
  EXPECT_EQ(series.n_waiting, 0);
  EXPECT_EQ(series.n_running, 0);
}

TEST(ServingCounters, OneFailedStepIsNotYetAnUnhealthyEngine) {
  ServingCounters counters;
  ServingCounters::add(counters.n_steps_failed_in_a_row);
  EXPECT_TRUE(counters.snapshot().healthy);
  ServingCounters::add(counters.n_steps_failed_in_a_row, 2);
  EXPECT_FALSE(counters.snapshot().healthy);
  ServingCounters::set(counters.n_steps_failed_in_a_row, 0);
  EXPECT_TRUE(counters.snapshot().healthy);
}

}  // namespace
}  // namespace graft
