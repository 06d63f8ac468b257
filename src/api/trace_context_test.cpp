#include "api/trace_context.h"

#include <gtest/gtest.h>

namespace graft::api {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kValid = "00-" + kTrace + "-00f067aa0ba902b7-01";

TEST(TraceContext, ValidHeadersGiveTheTrace) {
  EXPECT_EQ(trace_id_of(kValid), kTrace);
  // A later version may say more.
  EXPECT_EQ(trace_id_of("01" + kValid.substr(2) + "-more"), kTrace);
  EXPECT_EQ(trace_id_of("cc" + kValid.substr(2)), kTrace);
}

TEST(TraceContext, AnythingElseGivesNothing) {
  for (const std::string& text :
       {std::string(), std::string("00"), kValid.substr(1), kValid + "-more", kValid + "0",
        "ff" + kValid.substr(2), "0x" + kValid.substr(2), "01" + kValid.substr(2) + "more",
        "00-" + std::string(32, '0') + "-00f067aa0ba902b7-01",
        "00-" + kTrace + "-" + std::string(16, '0') + "-01",
        "00-" + kTrace + "-00F067AA0BA902B7-01", "00-" + kTrace + "_00f067aa0ba902b7-01",
        "00_" + kTrace + "-00f067aa0ba902b7-01", "00-" + kTrace + "-00f067aa0ba902b7-0g"}) {
    EXPECT_EQ(trace_id_of(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace graft::api
