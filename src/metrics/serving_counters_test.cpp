#include "metrics/serving_counters.h"

#include <gtest/gtest.h>

namespace graft {
namespace {

TEST(ServingCounters, StepTimesFallIntoTheirBuckets) {
  ServingCounters counters;
  counters.record_step(1000);     // <= 1 ms
  counters.record_step(1001);     // <= 2 ms
  counters.record_step(9000000);  // beyond the last bound
  const ServingSnapshot snapshot = counters.snapshot();
  EXPECT_EQ(snapshot.n_steps, 3);
  EXPECT_EQ(snapshot.step_time_us, 9002001);
  EXPECT_EQ(snapshot.step_time_counts[0], 1);
  EXPECT_EQ(snapshot.step_time_counts[1], 1);
  EXPECT_EQ(snapshot.step_time_counts.back(), 1);
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
