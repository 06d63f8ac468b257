#include "text/token_memo.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace graft {
namespace {

using Tokens = std::vector<TokenId>;

std::optional<Tokens> known(TokenMemo& memo, std::string_view owner, std::string_view text) {
  Tokens tokens;
  if (!memo.append_known(owner, text, tokens)) return std::nullopt;
  return tokens;
}

TEST(TokenMemoTest, RemembersByOwnerAndText) {
  TokenMemo memo;
  memo.remember("a", "text", Tokens{1, 2});
  EXPECT_EQ(known(memo, "a", "text"), (Tokens{1, 2}));
  EXPECT_EQ(known(memo, "b", "text"), std::nullopt);
  EXPECT_EQ(known(memo, "", "atext"), std::nullopt);
  EXPECT_EQ(known(memo, "a", "tex"), std::nullopt);
  memo.remember(std::string_view("a\0b", 3), "c", Tokens{3});
  EXPECT_EQ(known(memo, "a", std::string_view("\0bc", 3)), std::nullopt);
  memo.remember("a", "", Tokens{});
  EXPECT_EQ(known(memo, "a", ""), Tokens{});
}

TEST(TokenMemoTest, AppendsToWhatIsThere) {
  TokenMemo memo;
  memo.remember("a", "text", Tokens{2, 3});
  Tokens tokens{1};
  EXPECT_TRUE(memo.append_known("a", "text", tokens));
  EXPECT_EQ(tokens, (Tokens{1, 2, 3}));
  EXPECT_FALSE(memo.append_known("a", "other", tokens));
  EXPECT_EQ(tokens, (Tokens{1, 2, 3}));
}

TEST(TokenMemoTest, TheLeastRecentlyUsedGoesFirst) {
  TokenMemo memo({.n_entries = 2, .n_bytes = 1000, .longest_text = 100});
  memo.remember("a", "1", Tokens{1});
  memo.remember("a", "2", Tokens{2});
  EXPECT_TRUE(known(memo, "a", "1"));
  memo.remember("a", "3", Tokens{3});
  EXPECT_TRUE(known(memo, "a", "1"));
  EXPECT_FALSE(known(memo, "a", "2"));
  EXPECT_TRUE(known(memo, "a", "3"));
  EXPECT_EQ(memo.n_entries(), 2U);
}

TEST(TokenMemoTest, BytesAreBounded) {
  TokenMemo memo({.n_entries = 1000, .n_bytes = 2000, .longest_text = 500});
  memo.remember("a", std::string(501, 'x'), Tokens{1});
  EXPECT_EQ(memo.n_entries(), 0U);
  for (char c = 'a'; c <= 'z'; ++c) {
    memo.remember("a", std::string(400, c), Tokens(20, c));
    EXPECT_LE(memo.n_bytes(), 2000U);
    EXPECT_TRUE(known(memo, "a", std::string(400, c)));
  }
  EXPECT_EQ(memo.n_entries(), 4U);
  // One that fits nowhere drops itself.
  memo.remember("a", "x", Tokens(1000, 1));
  EXPECT_EQ(memo.n_entries(), 0U);
  EXPECT_EQ(memo.n_bytes(), 0U);
}

TEST(TokenMemoTest, RememberedTwiceIsHeldOnce) {
  TokenMemo memo;
  memo.remember("a", "text", Tokens{1});
  const std::size_t n_bytes = memo.n_bytes();
  memo.remember("a", "text", Tokens{1});
  EXPECT_EQ(memo.n_entries(), 1U);
  EXPECT_EQ(memo.n_bytes(), n_bytes);
}

TEST(TokenMemoTest, ManyThreads) {
  TokenMemo memo({.n_entries = 8, .n_bytes = 1000, .longest_text = 100});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&memo, thread] {
      for (int i = 0; i < 2000; ++i) {
        const std::string text = std::to_string((i * 7 + thread) % 16);
        const auto tokens = known(memo, "a", text);
        if (tokens) {
          EXPECT_EQ(*tokens, Tokens{std::stoi(text)});
        } else {
          memo.remember("a", text, Tokens{std::stoi(text)});
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(memo.n_entries(), 8U);
}

}  // namespace
}  // namespace graft
