#include "text/special_text.h"

#include <gtest/gtest.h>

#include <random>

namespace graft {
namespace {

TEST(SpecialTextTest, FindsTheLongestAtEachPosition) {
  const SpecialText special({"<s>", "<s>x", "<|end|>", "", "<"});
  std::vector<std::string> found;
  const std::string text = "a<s>xy <|end|> <";
  special.for_each(
      text, [&](SpecialText::Match m) { found.push_back(text.substr(m.begin, m.end - m.begin)); });
  EXPECT_EQ(found, (std::vector<std::string>{"<s>x", "<|end|>", "<"}));
  EXPECT_TRUE(special.occurs_in(text));
  EXPECT_FALSE(special.occurs_in("plain |end|>"));
  EXPECT_FALSE(SpecialText().occurs_in(text));
}

TEST(SpecialTextTest, MatchesPlainSearch) {
  std::mt19937 rng(3);
  const auto word = [&](std::size_t n, unsigned letters) {
    std::string s;
    while (s.size() < n) {
      s += static_cast<char>(0xFE + rng() % letters);  // wraps: bytes FE FF 00
    }
    return s;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> texts(rng() % 6);
    for (std::string& text : texts) {
      text = word(1 + rng() % 4, 3);
    }
    const SpecialText special(texts);
    const std::string text = word(rng() % 20, 3);
    std::vector<std::size_t> lengths(text.size(), 0);
    special.for_each(text, [&](SpecialText::Match m) { lengths[m.begin] = m.end - m.begin; });
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::size_t expected = 0;
      for (const std::string& s : texts) {
        if (text.compare(at, s.size(), s) == 0) {
          expected = std::max(expected, s.size());
        }
      }
      ASSERT_EQ(lengths[at], expected);
    }
  }
}

}  // namespace
}  // namespace graft
