#include "scheduler/isolate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace graft {
namespace {

// Runs 0 .. n - 1 where a run with a culprit in it fails, and checks what is promised.
void expect_isolation(int n, const std::set<int>& culprits) {
  std::vector<int> items;
  for (int i = 0; i < n; ++i) items.push_back(i);
  std::vector<int> computed;
  std::vector<int> given_up;
  int n_runs = 0;
  const auto run = [&](std::span<const int> some) {
    ++n_runs;
    if (std::any_of(some.begin(), some.end(), [&](int i) { return culprits.contains(i); })) {
      return false;
    }
    computed.insert(computed.end(), some.begin(), some.end());
    return true;
  };
  const bool all_well =
      run_isolated(std::span<const int>(items), run, [&](int item) { given_up.push_back(item); });
  EXPECT_EQ(all_well, culprits.empty());
  EXPECT_EQ(std::set<int>(given_up.begin(), given_up.end()), culprits);
  EXPECT_EQ(computed.size() + given_up.size(), items.size());  // everyone exactly once
  // 128 = 2^7: one run fails per level, one succeeds.
  const int n_runs_at_most = culprits.empty() ? 1 : 1 + 2 * 7;
  if (culprits.size() <= 1) {
    EXPECT_LE(n_runs, n_runs_at_most);
  }
}

TEST(Isolate, WithoutAFaultEverythingRunsAtOnce) {
  expect_isolation(0, {});
  expect_isolation(1, {});
  expect_isolation(128, {});
}

TEST(Isolate, OneCulpritIsFoundAndTheOthersRunOnce) {
  for (int culprit = 0; culprit < 128; ++culprit) expect_isolation(128, {culprit});
  for (int culprit = 0; culprit < 5; ++culprit) expect_isolation(5, {culprit});
  expect_isolation(1, {0});
}

TEST(Isolate, SeveralCulpritsAreAllFound) {
  expect_isolation(16, {0, 7, 8, 15});
  expect_isolation(3, {0, 1, 2});
}

}  // namespace
}  // namespace graft
