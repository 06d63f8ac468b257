// Logits of transformers + PEFT against ours, for every adapter case of make_golden.py: F32
// weights, F32 factors, F32 keys and values, tolerance 5e-4 (design section 11). Three paths
// compute each case: the attention step with the fused kernel, the same with ggml's plain
// attention, and the attention step with the prompt cut into pieces beside another sequence that
// runs on the base.
#include <gtest/gtest.h>

#include "support/golden_cases.h"

namespace graft::testing {
namespace {

class Golden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(Golden, AgreesWithPeft) {
  for (const GoldenPath& path :
       {GoldenPath{.name = "attention step"},
        GoldenPath{.name = "plain attention", .our_attention = false},
        GoldenPath{.name = "in pieces beside the base", .chunk = 5, .company = true}}) {
    EXPECT_LT(run_golden_case(GetParam(), path), kGoldenTolerance) << path.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, ::testing::ValuesIn(read_golden_cases()), golden_case_name);

}  // namespace
}  // namespace graft::testing
