#include "http/client/event_scanner.h"

#include <gtest/gtest.h>

namespace graft {
namespace {

using Clock = EventScanner::Clock;

Clock::time_point at(int ms) { return Clock::time_point(std::chrono::milliseconds(ms)); }

const std::string kChatStream =
    R"(data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":null}

: waiting

data: {"choices":[{"index":0,"delta":{"content": "say \"text\":\"\" "},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}

data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}

data: [DONE]

)";

TEST(EventScanner, CountsTextsWhateverThePiecesAre) {
  for (std::size_t n_bytes = 1; n_bytes < kChatStream.size(); n_bytes += 7) {
    EventScanner scanner;
    int ms = 0;
    for (std::size_t i = 0; i < kChatStream.size(); i += n_bytes) {
      scanner.set_time(at(++ms));
      scanner.feed(std::string_view(kChatStream).substr(i, n_bytes));
    }
    EXPECT_EQ(scanner.text_times().size(), 2U) << n_bytes;
    EXPECT_TRUE(scanner.done());
    EXPECT_EQ(scanner.usage_event(),
              R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}})");
    EXPECT_EQ(scanner.error_event(), "");
  }
}

TEST(EventScanner, ATextHasTheTimeAtWhichItsEventWasComplete) {
  EventScanner scanner;
  scanner.set_time(at(5));
  scanner.feed("data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"te");
  scanner.set_time(at(9));
  scanner.feed("xt\":\"b\"}]}\r\n\r\n");
  EXPECT_EQ(scanner.text_times(), (std::vector<Clock::time_point>{at(5), at(9)}));
  EXPECT_FALSE(scanner.done());
}

TEST(EventScanner, ToolCallsAndReasoningAreText) {
  EventScanner scanner;
  scanner.feed(
      "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"{\"}}]}}]}\n"
      "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n"
      "data: {\"choices\":[{\"delta\":{\"content\":null}}]}\n");
  EXPECT_EQ(scanner.text_times().size(), 2U);
}

TEST(EventScanner, KeepsTheFirstErrorAndTheBeginning) {
  EventScanner scanner;
  scanner.feed(
      "data: {\"error\":{\"message\":\"one\"}}\ndata: {\"error\":{\"message\":\"two\"}}\n");
  EXPECT_EQ(scanner.error_event(), R"({"error":{"message":"one"}})");
  EXPECT_TRUE(scanner.beginning().starts_with("data: {\"error\""));
  EventScanner page;
  page.feed(std::string(5000, 'x'));
  EXPECT_EQ(page.beginning().size(), 1024U);
}

TEST(EventScanner, AnEndlessLineIsAnErrorAndTakesNoMemory) {
  EventScanner scanner;
  for (int i = 0; i < 64; ++i) scanner.feed(std::string(64 << 10, 'x'));
  EXPECT_NE(scanner.error_event().find("1 MiB"), std::string::npos);
}

}  // namespace
}  // namespace graft
