// The two indexes of the prefix cache without a model: what matches, who holds what, which entries
// go when room is needed, compared with a plain list in order of use.
#include "engine/kv/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <set>

#include "engine/kv/warm_blocks.h"

namespace graft {
namespace {

OwnedPath path_of(const std::string& text, const std::string& root = "r",
                  std::vector<RoleRun> roles = {{0, ""}}) {
  OwnedPath path{root, root, {}, std::move(roles)};
  for (const char c : text) path.tokens.push_back(c);
  return path;
}

void insert(PrefixIndex& index, const OwnedPath& path, std::int32_t holder) {
  index.insert(path.view(), holder);
  index.check_invariants();
}

TEST(PrefixIndex, FindsTheLongestKnownBeginning) {
  PrefixIndex index;
  EXPECT_EQ(index.find(path_of("abc").view()).n_tokens, 0);
  insert(index, path_of("abcdef"), 7);
  EXPECT_EQ(index.find(path_of("abcdef").view()).n_tokens, 6);
  EXPECT_EQ(index.find(path_of("abcx").view()).n_tokens, 3);
  EXPECT_EQ(index.find(path_of("abcx").view()).holder, 7);
  EXPECT_EQ(index.find(path_of("xabc").view()).n_tokens, 0);
  EXPECT_EQ(index.find(path_of("abc", "other").view()).n_tokens, 0);
  EXPECT_TRUE(index.find(path_of("abcdefgh").view()).ends_leaf);
  EXPECT_FALSE(index.find(path_of("abcd").view()).ends_leaf);
}

TEST(PrefixIndex, APathThatGrowsKeepsItsHolderAndABranchTakesAnother) {
  PrefixIndex index;
  insert(index, path_of("abc"), 1);
  insert(index, path_of("abcdef"), 1);
  EXPECT_EQ(index.n_leaves(), 1);
  insert(index, path_of("abcxyz"), 2);
  EXPECT_EQ(index.n_leaves(), 2);
  EXPECT_EQ(index.n_cells(), 9);  // abc once
  EXPECT_EQ(index.find(path_of("abcdef").view()).holder, 1);
  EXPECT_EQ(index.find(path_of("abcxy").view()).holder, 2);
  insert(index, path_of("abxx"), 3);  // splits
  EXPECT_EQ(index.n_cells(), 11);
  const OwnedPath whole = index.path_of(2);
  EXPECT_EQ(whole.tokens, path_of("abcxyz").tokens);
}

TEST(PrefixIndex, CuttingALeafLeavesWhatOthersNeed) {
  PrefixIndex index;
  insert(index, path_of("abc"), 1);
  insert(index, path_of("abcdef"), 1);
  insert(index, path_of("abcxyz"), 2);
  EXPECT_EQ(index.cut(2, 5), 5);  // a part of its run
  index.check_invariants();
  EXPECT_EQ(index.find(path_of("abcxyz").view()).n_tokens, 5);
  EXPECT_EQ(index.cut(2, 3), 0);  // the other leaf still holds abc
  index.check_invariants();
  EXPECT_FALSE(index.has_holder(2));
  EXPECT_EQ(index.cut(1, 3), 3);  // abc is a leaf again
  EXPECT_EQ(index.find(path_of("abcdef").view()).n_tokens, 3);
  EXPECT_EQ(index.cut(1, 0), 0);
  index.check_invariants();
  EXPECT_EQ(index.n_cells(), 0);
}

TEST(PrefixIndex, ATokenUnderAnotherRoleIsAnotherToken) {
  PrefixIndex index;
  insert(index, path_of("abcdef", "r", {{0, ""}, {3, "module"}}), 1);
  EXPECT_EQ(index.find(path_of("abcdef").view()).n_tokens, 3);  // the base's part
  EXPECT_EQ(index.find(path_of("abcdef", "r", {{0, "module"}}).view()).n_tokens, 0);
  EXPECT_EQ(index.find(path_of("abcdef", "r", {{0, ""}, {2, "module"}}).view()).n_tokens, 2);
  EXPECT_EQ(index.find(path_of("abcdef", "r", {{0, ""}, {3, "module"}}).view()).n_tokens, 6);
  insert(index, path_of("abcdef"), 2);
  EXPECT_EQ(index.find(path_of("abcdef").view()).n_tokens, 6);
  EXPECT_EQ(index.n_cells(), 9);
  EXPECT_EQ(index.find_role("module"), std::make_optional(std::pair(1, 3)));
  EXPECT_EQ(index.path_of(1).roles, (std::vector<RoleRun>{{0, ""}, {3, "module"}}));
}

TEST(PrefixIndex, WhatIsWantedOftenIsWorthMore) {
  PrefixIndex index(1000);
  insert(index, path_of("aaaa"), 1);
  insert(index, path_of("bbbb"), 2);
  for (int i = 0; i < 3; ++i) index.touch(path_of("aaaa").view());
  EXPECT_GT(index.leaf(1).value, index.leaf(2).value);
  for (int i = 0; i < 5; ++i) index.touch(path_of("bbbb").view());
  EXPECT_GT(index.leaf(2).value, index.leaf(1).value);
}

std::int32_t least_valuable(const PrefixIndex& index) {
  const auto leaves = index.leaves();
  return std::min_element(leaves.begin(), leaves.end(),
                          [](const HotLeaf& a, const HotLeaf& b) { return a.value < b.value; })
      ->holder;
}

// With a short memory the leaf of least value is the one used least recently.
TEST(PrefixIndex, EvictsAsAListInOrderOfUseDoes) {
  constexpr std::int32_t kRoom = 20;
  PrefixIndex index(0.1);
  std::list<int> used;  // latest first
  std::set<std::int32_t> holders;
  for (std::int32_t i = 0; i < kRoom; ++i) holders.insert(i);
  std::mt19937 random(3);
  int n_hits = 0;
  int n_simulated = 0;
  for (int step = 0; step < 5000; ++step) {
    const int key = static_cast<int>(random() % 60);
    const OwnedPath path = path_of(std::string(1, static_cast<char>('A' + key)) + "tail");
    const auto listed = std::find(used.begin(), used.end(), key);
    n_simulated += listed != used.end() ? 1 : 0;
    if (listed != used.end()) used.erase(listed);
    used.push_front(key);
    if (used.size() > kRoom) used.pop_back();

    if (index.find(path.view()).n_tokens == path.view().n_tokens()) {
      ++n_hits;
      index.touch(path.view());
      continue;
    }
    if (holders.empty()) {
      const std::int32_t victim = least_valuable(index);
      ASSERT_EQ(index.cut(victim, 0), 0);
      holders.insert(victim);
    }
    insert(index, path, *holders.begin());
    holders.erase(holders.begin());
  }
  EXPECT_EQ(n_hits, n_simulated);
  EXPECT_GT(n_hits, 1000);
}

// Random paths over few letters, against a list of all that was put in.
TEST(PrefixIndex, InvariantsHoldUnderRandomUse) {
  PrefixIndex index;
  std::mt19937 random(5);
  std::set<std::int32_t> free;
  for (std::int32_t i = 0; i < 12; ++i) free.insert(i);
  std::map<std::int32_t, OwnedPath> held;
  for (int step = 0; step < 20000; ++step) {
    OwnedPath path = path_of("", random() % 2 == 0 ? "r" : "s");
    const auto n = 1 + random() % 12;
    for (std::size_t i = 0; i < n; ++i) path.tokens.push_back(static_cast<TokenId>(random() % 3));
    if (random() % 3 == 0) {
      path.roles.push_back({static_cast<std::int32_t>(1 + random() % n), "m"});
    }
    const HotMatch match = index.find(path.view());
    std::int32_t longest = 0;
    for (const auto& [holder, other] : held) {
      if (other.root != path.root) continue;
      std::int32_t same = 0;
      while (same < path.view().n_tokens() && same < other.view().n_tokens() &&
             path.tokens[static_cast<std::size_t>(same)] ==
                 other.tokens[static_cast<std::size_t>(same)] &&
             path.roles[path.view().role_at(same)].role ==
                 other.roles[other.view().role_at(same)].role) {
        ++same;
      }
      longest = std::max(longest, same);
    }
    ASSERT_EQ(match.n_tokens, longest);
    if (match.n_tokens < path.view().n_tokens()) {
      const std::int32_t holder = match.ends_leaf ? match.holder
                                  : free.empty()  ? -1
                                                  : *free.begin();
      if (holder >= 0) {
        insert(index, path, holder);
        free.erase(holder);
        held[holder] = path;
      }
    } else {
      index.touch(path.view());
    }
    if (free.empty() || random() % 4 == 0) {
      if (held.empty()) continue;
      const std::int32_t victim =
          std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()))->first;
      const HotLeaf leaf = index.leaf(victim);
      const auto keep = static_cast<std::int32_t>(
          leaf.begin +
          static_cast<std::int32_t>(random() % static_cast<unsigned>(leaf.end - leaf.begin)));
      const std::int32_t left = index.cut(victim, keep);
      index.check_invariants();
      held.erase(victim);
      if (left == 0) free.insert(victim);
      if (left > 0) held[victim] = index.path_of(victim);
    }
  }
}

std::shared_ptr<const WarmBytes> some_bytes(std::size_t n, std::uint8_t fill = 0) {
  auto bytes = std::make_shared<WarmBytes>();
  bytes->pieces.push_back({4, std::vector<std::byte>(n, std::byte{fill})});
  return bytes;
}

void save(WarmBlocks& blocks, const OwnedPath& path, std::size_t n_bytes = 100) {
  while ((blocks.find(path.view()) + 1) * blocks.n_block_tokens() <= path.view().n_tokens()) {
    if (!blocks.add(path.view(), some_bytes(n_bytes))) return;
    blocks.check_invariants();
  }
}

TEST(WarmBlocks, WholeBlocksOfSharedBeginningsAreThereOnce) {
  WarmBlocks blocks(4, 1 << 20);
  save(blocks, path_of("aaaabbbbcc"));
  EXPECT_EQ(blocks.n_blocks(), 2U);
  EXPECT_EQ(blocks.find(path_of("aaaabbbbcccc").view()), 2);
  EXPECT_EQ(blocks.find(path_of("aaaabbbx").view()), 1);
  EXPECT_EQ(blocks.find(path_of("aaa").view()), 0);
  EXPECT_EQ(blocks.find(path_of("aaaabbbb", "other").view()), 0);
  EXPECT_EQ(blocks.find(path_of("aaaabbbb", "r", {{0, ""}, {5, "m"}}).view()), 1);
  save(blocks, path_of("aaaadddd"));
  EXPECT_EQ(blocks.n_blocks(), 3U);
  EXPECT_EQ(blocks.use(path_of("aaaadddd").view(), 2).size(), 2U);
}

TEST(WarmBlocks, LastBlocksOfWhatWasUsedLeastRecentlyGoFirst) {
  WarmBlocks probe(4, 1 << 20);
  save(probe, path_of("aaaa"));
  const std::uint64_t one = probe.n_bytes();
  WarmBlocks blocks(4, 4 * one + one / 2);
  save(blocks, path_of("aaaabbbb"));
  save(blocks, path_of("ccccdddd"));
  EXPECT_EQ(blocks.n_blocks(), 4U);
  blocks.use(path_of("aaaabbbb").view(), 2);
  save(blocks, path_of("eeee"));
  EXPECT_EQ(blocks.find(path_of("ccccdddd").view()), 1);
  EXPECT_EQ(blocks.find(path_of("aaaabbbb").view()), 2);
  EXPECT_EQ(blocks.n_evictions(), 1);
  EXPECT_FALSE(WarmBlocks(4, one / 2).add(path_of("aaaa").view(), some_bytes(100)));
}

TEST(WarmBlocks, ATenantCannotPushOutWhatAnotherKeepsWithinItsShare) {
  WarmBlocks probe(4, 1 << 20);
  save(probe, path_of("aaaa"));
  WarmBlocks blocks(4, 8 * probe.n_bytes() + 100);
  save(blocks, path_of("aaaabbbbccccdddd", "quiet"));
  for (int i = 0; i < 50; ++i) {
    save(blocks, path_of(std::string(4, static_cast<char>('A' + i)), "loud"));
  }
  EXPECT_EQ(blocks.find(path_of("aaaabbbbccccdddd", "quiet").view()), 4);
  EXPECT_EQ(blocks.n_blocks(), 8U);
  // And who was alone must make room for a newcomer.
  save(blocks, path_of("zzzzyyyy", "new"));
  EXPECT_EQ(blocks.find(path_of("zzzzyyyy", "new").view()), 2);
}

TEST(WarmBlocks, DroppingARoleTakesWhatBuildsOnIt) {
  WarmBlocks blocks(4, 1 << 20);
  save(blocks, path_of("aaaabbbbcccc", "r", {{0, ""}, {6, "m"}}));
  save(blocks, path_of("aaaabbbb"));
  EXPECT_EQ(blocks.n_blocks(), 4U);
  blocks.drop_role("m");
  blocks.check_invariants();
  EXPECT_EQ(blocks.n_blocks(), 2U);
  EXPECT_EQ(blocks.find(path_of("aaaabbbb").view()), 2);
}

TEST(TenantShares, SomebodyIsAlwaysAtItsShare) {
  TenantShares shares;
  shares.add("a", 60);
  shares.add("b", 30);
  EXPECT_TRUE(shares.is_at_share("a"));
  EXPECT_FALSE(shares.is_at_share("b"));
  EXPECT_TRUE(shares.is_at_share("b", "b", 40));
  EXPECT_TRUE(shares.is_at_share("a", "c", 10));
  shares.add("a", -60);
  EXPECT_EQ(shares.use("a"), 0);
  EXPECT_TRUE(shares.is_at_share("b"));
  EXPECT_EQ(shares.total(), 30);
}

}  // namespace
}  // namespace graft
