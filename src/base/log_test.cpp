#include "base/log.h"

#include <gtest/gtest.h>

#include <limits>

namespace graft {
namespace {

const std::vector<LogField> kFields = {{"id", std::string("req-1")},
                                       {"n", std::int64_t{-5}},
                                       {"ms", 1.25},
                                       {"said", std::string("a \"b\"\n=c")},
                                       {"none", std::string()}};

TEST(Log, TextQuotesOnlyWhatWouldBeUnclear) {
  EXPECT_EQ(log_text("request", kFields),
            "request id=req-1 n=-5 ms=1.250 said=\"a \\\"b\\\"\\u000a=c\" none=\"\"");
  EXPECT_EQ(log_text("it's 100% {}", {}), "it's 100% {}");
}

TEST(Log, JsonHasTheValuesAsMembers) {
  EXPECT_EQ(log_json("a \\ \x7f", kFields),
            "\"message\":\"a \\\\ \\u007f\",\"id\":\"req-1\",\"n\":-5,\"ms\":1.250,"
            "\"said\":\"a \\\"b\\\"\\u000a=c\",\"none\":\"\"");
}

TEST(Log, NoNumberBreaksTheJson) {
  const std::vector<LogField> fields = {{"x", std::numeric_limits<double>::quiet_NaN()}};
  EXPECT_EQ(log_json("m", fields), "\"message\":\"m\",\"x\":0.000");
}

}  // namespace
}  // namespace graft
