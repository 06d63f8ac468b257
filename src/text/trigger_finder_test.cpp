#include "text/trigger_finder.h"

#include <gtest/gtest.h>

namespace graft {
namespace {

TriggerFinder finder(const std::vector<GrammarTrigger>& triggers) {
  return std::move(TriggerFinder::create(triggers)).value();
}

TEST(TriggerFinder, WordsAcrossPieces) {
  for (std::size_t size = 1; size < 12; ++size) {
    TriggerFinder found = finder({{"<tool_call>", false}, {"[CALL]", false}});
    const std::string text = std::string(1000, 'x') + "<tool <tool_call>\n{";
    std::optional<std::string> start;
    std::string rest;
    for (std::size_t at = 0; at < text.size(); at += size) {
      if (!start) {
        start = found.push(text.substr(at, size));
      } else {
        rest += text.substr(at, size);
      }
    }
    ASSERT_TRUE(start) << size;
    EXPECT_EQ(*start + rest, "<tool_call>\n{") << size;
  }
}

TEST(TriggerFinder, PatternsStartAtTheirGroup) {
  TriggerFinder found = finder({{"<s>assistant(\\s+to)", true}, {"^\\s+to$", true}});
  EXPECT_FALSE(found.push("well"));
  EXPECT_FALSE(found.push(" to"));  // not at the beginning
  EXPECT_FALSE(found.push(std::string(1000, ' ')));
  EXPECT_FALSE(found.push(" to"));
  EXPECT_FALSE(found.push("<s>assis"));
  EXPECT_EQ(found.push("tant to=f").value_or(""), " to=f");
  EXPECT_EQ(finder({{"^\\s+to$", true}}).push(" to").value_or(""), " to");
}

TEST(TriggerFinder, BadTriggersAreErrors) {
  EXPECT_FALSE(TriggerFinder::create({{"", false}}));
  EXPECT_FALSE(TriggerFinder::create({{std::string(300, 'x'), false}}));
  EXPECT_FALSE(TriggerFinder::create({{"(", true}}));
}

}  // namespace
}  // namespace graft
