#include <gtest/gtest.h>

#include <random>

#include "engine/kv/cell_ledger.h"
#include "engine/kv/sequence_ids.h"

namespace graft {
namespace {

TEST(SequenceIds, GivesTheLowestFreeNumberAndRunsOut) {
  SequenceIds ids(3);
  EXPECT_EQ(ids.acquire(), 0);
  EXPECT_EQ(ids.acquire(), 1);
  EXPECT_EQ(ids.acquire(), 2);
  EXPECT_EQ(ids.acquire(), std::nullopt);
  ids.release(1);
  EXPECT_EQ(ids.n_free(), 1);
  EXPECT_EQ(ids.acquire(), 1);
}

TEST(SequenceIds, ARangeThatBeginsLater) {
  SequenceIds ids(2, 254);
  EXPECT_FALSE(ids.contains(253));
  EXPECT_EQ(ids.acquire(), 254);
  EXPECT_EQ(ids.acquire(), 255);
  EXPECT_EQ(ids.acquire(), std::nullopt);
  ids.release(254);
  EXPECT_EQ(ids.acquire(), 254);
}

TEST(CellLedger, CountsWhatSequencesHold) {
  CellLedger cells(10, 3, 3);
  cells.extend(0, 4);
  cells.extend(2, 5);
  EXPECT_EQ(cells.n_free(), 1);
  EXPECT_EQ(cells.length(0), 4);
  EXPECT_EQ(cells.length(1), 0);
  cells.truncate(0, 1);
  EXPECT_EQ(cells.n_free(), 4);
  cells.truncate(2, 0);
  EXPECT_EQ(cells.n_free(), 9);
  cells.check_invariants();
}

TEST(CellLedger, SharedCellsAreFreeWhenTheLastHolderLetsGo) {
  CellLedger cells(10, 3, 3);
  cells.extend(0, 6);
  cells.copy(0, 1, 4);
  EXPECT_EQ(cells.n_free(), 4);
  cells.extend(1, 2);  // own cells behind the shared ones
  EXPECT_EQ(cells.n_free(), 2);
  cells.truncate(0, 0);
  EXPECT_EQ(cells.n_free(), 4);  // positions 4 and 5 of sequence 0; the first four live on
  cells.truncate(1, 0);
  EXPECT_EQ(cells.n_free(), 10);
  cells.check_invariants();
}

TEST(CellLedger, CellsThatNoLiveSequenceHoldsAreIdle) {
  CellLedger cells(10, 4, 2);  // 2 and 3 only hold
  cells.extend(0, 6);
  cells.share(0, 2, 0, 4);
  EXPECT_EQ(cells.n_idle(), 0);
  EXPECT_EQ(cells.n_own(0), 6);
  cells.copy(2, 1, 3);
  EXPECT_EQ(cells.n_own(0), 3);
  EXPECT_EQ(cells.n_held_live(2, 0, 4, 2), 3);
  cells.truncate(0, 0);
  EXPECT_EQ(cells.n_idle(), 1);
  EXPECT_EQ(cells.n_free(), 6);
  EXPECT_EQ(cells.n_held_live(2, 0, 4), 3);
  cells.truncate(1, 0);
  EXPECT_EQ(cells.n_idle(), 4);
  cells.check_invariants();
  cells.share(2, 3, 0, 2);
  cells.truncate(2, 0);
  EXPECT_EQ(cells.n_idle(), 2);
  cells.truncate(3, 0);
  EXPECT_EQ(cells.n_idle(), 0);
  EXPECT_EQ(cells.n_free(), 10);
  cells.check_invariants();
}

TEST(CellLedger, InvariantsHoldUnderRandomUse) {
  CellLedger cells(64, 5, 3);
  std::mt19937 random(7);
  for (int step = 0; step < 2000; ++step) {
    const auto sequence = static_cast<std::int32_t>(random() % 5);
    switch (random() % 3) {
      case 0: {
        const auto n = static_cast<std::int32_t>(random() % 9);
        if (n <= cells.n_free()) cells.extend(sequence, n);
        break;
      }
      case 1:
        cells.truncate(sequence, static_cast<std::int32_t>(
                                     random() % static_cast<unsigned>(cells.length(sequence) + 1)));
        break;
      default: {
        const std::int32_t to = (sequence + 1) % 5;
        if (cells.length(to) == 0) cells.copy(sequence, to, cells.length(sequence));
        break;
      }
    }
    cells.check_invariants();
  }
  cells.clear();
  EXPECT_EQ(cells.n_free(), 64);
  cells.check_invariants();
}

}  // namespace
}  // namespace graft
