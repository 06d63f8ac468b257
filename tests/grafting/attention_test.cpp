// The attention step against ggml's own, and the promise of batch invariance, on the real model:
// a sequence's logits are the same bits alone, in any company, in any chunks, wherever its cells
// lie and for any number of threads.
#include <gtest/gtest.h>

#include "support/company.h"
#include "support/raw_context.h"

namespace graft::testing {
namespace {

const Company kCompanies[] = {{0, 37, false}, {2, 64, false}, {5, 29, false},
                              {6, 1, false},  {0, 64, true},  {4, 16, true}};

class Invariance : public ::testing::TestWithParam<const char*> {};

TEST_P(Invariance, LogitsAreTheSameBitsInAnyCompany) {
  const ModelPointer model = load_model(cached_model(GetParam()));
  RawContext context(model.get(), {});
  const Logits alone = run_sequence(context, {});
  EXPECT_GT(context.grafter().stats().n_attention_nodes, 0);
  EXPECT_EQ(context.grafter().stats().n_foreign_attention_nodes, 0);
  for (const Company& company : kCompanies) {
    const Logits mixed = run_sequence(context, company);
    ASSERT_EQ(mixed.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(mixed[i], alone[i])
          << company.n_others << " others, chunk " << company.chunk << ", output " << i
          << ", largest difference " << largest_difference(mixed[i], alone[i]);
    }
  }
}

TEST_P(Invariance, LogitsAreTheSameBitsForOtherThreadCounts) {
  const ModelPointer model = load_model(cached_model(GetParam()));
  RawContext one(model.get(), {.n_threads = 1});
  RawContext two(model.get(), {.n_threads = 2});
  EXPECT_EQ(run_sequence(two, {2, 64, false}), run_sequence(one, {}));
}

INSTANTIATE_TEST_SUITE_P(Types, Invariance,
                         ::testing::Values("SmolLM2-135M-Instruct-Q4_0.gguf",
                                           "SmolLM2-135M-Instruct-Q4_1.gguf",
                                           "SmolLM2-135M-Instruct-Q8_0.gguf"));

TEST(Attention, AgreesWithGgmlOnF32Weights) {
  const ModelPointer model = load_model(cached_model("SmolLM2-135M-Instruct-F32.gguf"));
  RawContext context(model.get(), {});
  const Logits ours = run_sequence(context, {});
  context.grafter().set_attention(false);
  const Logits theirs = run_sequence(context, {});
  // ggml rounds queries and weights to f16; design section 11 measured 2.3e-2 for that.
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LT(largest_difference(ours[i], theirs[i]), 3e-2);
    EXPECT_NE(ours[i], theirs[i]);  // otherwise one of them was not used
  }
}

TEST(Attention, F32CacheIsReadWithoutTheCast) {
  const ModelPointer model = load_model(cached_model("SmolLM2-135M-Instruct-F32.gguf"));
  RawContext ours(model.get(), {.cache_type = GGML_TYPE_F32});
  RawContext reference(
      model.get(),
      {.n_ctx = 1024, .grafter = false, .flash_attention = false, .cache_type = GGML_TYPE_F32});
  const Logits a = run_sequence(ours, {});
  const Logits b = run_sequence(reference, {});
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_LT(largest_difference(a[i], b[i]), 5e-4);
}

TEST(Attention, QuantisedCacheIsCoveredAndInvariant) {
  const ModelPointer model = load_model(cached_model("SmolLM2-135M-Instruct-Q8_0.gguf"));
  RawContext context(model.get(), {.cache_type = GGML_TYPE_Q8_0});
  const Logits alone = run_sequence(context, {});
  EXPECT_EQ(context.grafter().stats().n_foreign_attention_nodes, 0);
  EXPECT_EQ(run_sequence(context, {5, 29, true}), alone);
}

TEST(Backend, ComputesOnceAndRefusesWhatThePlanDoesNotSay) {
  const ModelPointer model = load_model(cached_model("SmolLM2-135M-Instruct-Q4_0.gguf"));
  RawContext context(model.get(), {});
  for (const int n_rows : {1, 8, 40}) {
    const std::int64_t before = context.grafter().stats().n_computes;
    StepPlan plan;
    for (int i = 0; i < n_rows; ++i) add_row(plan, 0, i, i + 1 == n_rows, context.n_vocab());
    ASSERT_EQ(context.decode(plan), 0);
    EXPECT_EQ(context.grafter().stats().n_computes - before, 1) << n_rows << " rows";
    context.clear();
  }
  StepPlan plan;
  add_row(plan, 0, 0, true, context.n_vocab());
  StepPlan other = plan;
  other.rows[0].token += 1;
  llama_token token = plan.rows[0].token;
  context.grafter().begin_step(other);
  EXPECT_NE(llama_decode(context.get(), llama_batch_get_one(&token, 1)), 0);
  EXPECT_NE(context.grafter().last_error(), "");
  context.grafter().end_step();
  EXPECT_EQ(context.decode(plan), 0);
}

}  // namespace
}  // namespace graft::testing
