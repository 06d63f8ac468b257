// Deterministic matmuls on models whose weight types ggml multiplies by another kernel for few
// rows: agreement with ggml within rounding, and the same bits in any company, chunking and number
// of threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/raw_context.h"

namespace graft::testing {
namespace {

constexpr int kPrompt = 40;
constexpr int kSequence = 3;

using Logits = std::vector<std::vector<float>>;

struct Company {
  int n_others = 0;
  int chunk = kPrompt;
};

// Logits of the last prompt token and of three decode steps.
Logits run_sequence(RawContext& context, const Company& company) {
  context.clear();
  Logits result;
  int step = 0;
  for (int position = 0; position < kPrompt + 3; ++step) {
    StepPlan plan;
    for (int s = 0, n = 0; s < 8 && n < company.n_others; ++s) {
      if (s == kSequence) continue;
      plan.rows.push_back({(step * 7 + s + 3) % context.n_vocab(), step, s, n % 2 == 0, -1});
      ++n;
    }
    const int end = position < kPrompt ? std::min(position + company.chunk, kPrompt) : position + 1;
    for (; position < end; ++position) {
      const bool output = position >= kPrompt - 1;
      plan.rows.push_back(
          {(position * 37 + 5) % context.n_vocab(), position, kSequence, output, -1});
    }
    EXPECT_EQ(context.decode(plan), 0);
    if (position >= kPrompt) result.push_back(context.logits(plan.rows.size() - 1));
  }
  return result;
}

const Company kCompanies[] = {{0, 7}, {2, 13}, {6, 1}, {5, 40}};

int count_differing(RawContext& context) {
  const Logits alone = run_sequence(context, {});
  int n = 0;
  for (const Company& company : kCompanies) n += run_sequence(context, company) != alone ? 1 : 0;
  return n;
}

class ExactMatmuls : public ::testing::TestWithParam<const char*> {
 protected:
  ModelPointer model_ =
      load_model(std::string(GRAFT_SOURCE_DIR) + "/tests/golden/models/" + GetParam(), false);
};

TEST_P(ExactMatmuls, LogitsAreTheSameBitsInAnyCompanyOnlyWithThem) {
  RawContext exact(model_.get(), {.n_threads = 1, .deterministic = true});
  EXPECT_EQ(exact.grafter().uncovered_matmul(), "");
  EXPECT_EQ(count_differing(exact), 0);
  RawContext ggml(model_.get(), {.n_threads = 1});
  EXPECT_GT(count_differing(ggml), 0);
}

TEST_P(ExactMatmuls, AgreeWithGgmlWithinRounding) {
  RawContext exact(model_.get(), {.n_threads = 1, .deterministic = true});
  RawContext ggml(model_.get(), {.n_threads = 1});
  const Logits ours = run_sequence(exact, {});
  const Logits theirs = run_sequence(ggml, {});
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LT(largest_difference(ours[i], theirs[i]), 2e-3);
  }
}

TEST_P(ExactMatmuls, BitsDoNotDependOnTheNumberOfThreads) {
  RawContext one(model_.get(), {.n_threads = 1, .deterministic = true});
  RawContext two(model_.get(), {.n_threads = 2, .deterministic = true});
  EXPECT_EQ(run_sequence(two, {2, 13}), run_sequence(one, {}));
}

INSTANTIATE_TEST_SUITE_P(Tiny, ExactMatmuls,
                         ::testing::Values("llama.gguf", "gemma3.gguf", "qwen3moe.gguf"));

}  // namespace
}  // namespace graft::testing
