// The promise of `deterministic` on the real model: a sequence's logits are the same bits in any
// company for weight types that llama.cpp multiplies by another kernel for few rows. Each test also
// shows that llama.cpp's own matmuls break the promise for the type, so that it can fail.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/model.h"
#include "support/company.h"
#include "support/random_adapter.h"
#include "support/raw_context.h"

namespace graft::testing {
namespace {

const Company kCompanies[] = {{0, 37, false}, {5, 29, false}, {6, 1, false}, {4, 64, true}};

std::string model_of(const char* type) {
  return cached_model(std::string("SmolLM2-135M-Instruct-") + type + ".gguf");
}

int count_differing(RawContext& context, const Logits& alone) {
  int n = 0;
  for (const Company& company : kCompanies) n += run_sequence(context, company) != alone ? 1 : 0;
  return n;
}

class Deterministic : public ::testing::TestWithParam<const char*> {
 protected:
  const ModelPointer plain_ = load_model(model_of(GetParam()), false);
};

TEST_P(Deterministic, LogitsAreTheSameBitsInAnyCompany) {
  RawContext context(plain_.get(), {.deterministic = true});
  const Logits alone = run_sequence(context, {});
  EXPECT_EQ(context.grafter().uncovered_matmul(), "");
  EXPECT_GT(context.grafter().stats().n_exact_matmuls, 0);
  EXPECT_EQ(count_differing(context, alone), 0);
}

TEST_P(Deterministic, LogitsAreTheSameBitsForOtherThreadCounts) {
  RawContext one(plain_.get(), {.n_threads = 1, .deterministic = true});
  RawContext two(plain_.get(), {.n_threads = 2, .deterministic = true});
  EXPECT_EQ(run_sequence(two, {2, 64, false}), run_sequence(one, {}));
}

TEST_P(Deterministic, WithoutItTheCompanyShows) {
  // As serving has it: repacked where llama.cpp can.
  const ModelPointer served = load_model(model_of(GetParam()));
  RawContext context(served.get(), {});
  const Logits alone = run_sequence(context, {});
  EXPECT_EQ(context.grafter().stats().n_exact_matmuls, 0);
  EXPECT_GT(count_differing(context, alone), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, Deterministic, ::testing::Values("F32", "F16", "Q4_K_M"));

TEST(DeterministicCache, TheRotationOfAQuantisedCacheIsCovered) {
  const ModelPointer model = load_model(model_of("F16"), false);
  RawContext context(model.get(), {.deterministic = true, .cache_type = GGML_TYPE_Q8_0});
  const Logits alone = run_sequence(context, {});
  EXPECT_EQ(context.grafter().uncovered_matmul(), "");
  EXPECT_EQ(run_sequence(context, {5, 29, true}), alone);
}

// Logits of the last of five rows of sequence 0, each with `set`; beside another sequence or alone.
std::vector<float> last_of_five(RawContext& context, const StepPlan& sets, int set, bool company) {
  context.clear();
  StepPlan plan = sets;
  for (int i = 0; company && i < 3; ++i) add_row(plan, 1, i, false, context.n_vocab());
  for (int i = 0; i < 5; ++i) {
    add_row(plan, 0, i, i == 4, context.n_vocab());
    plan.rows.back().set = set;
  }
  EXPECT_EQ(context.decode(plan), 0);
  return context.logits(plan.rows.size() - 1);
}

TEST(DeterministicModules, ActBehindReplacedMatmuls) {
  const auto model = Model::load({.path = model_of("F32"), .use_extra_buffers = false});
  ASSERT_TRUE(model) << model.error().message;
  const auto module = make_random_module((*model)->base(), {});
  StepPlan sets;
  sets.sets.push_back({{module->resident.get(), 1.0F, 0}});
  RawContext ggml((*model)->handle(), {.n_threads = 1});
  RawContext exact((*model)->handle(), {.n_threads = 1, .deterministic = true});
  const std::vector<float> ours = last_of_five(exact, sets, 0, false);
  EXPECT_GT(exact.grafter().stats().n_module_nodes, 0);
  EXPECT_GT(exact.grafter().stats().n_exact_matmuls, 0);
  const std::vector<float> theirs = last_of_five(ggml, sets, 0, false);
  const double effect = largest_difference(theirs, last_of_five(ggml, sets, -1, false));
  EXPECT_GT(effect, 0.5);
  EXPECT_LT(largest_difference(ours, theirs), effect / 20);
  EXPECT_EQ(last_of_five(exact, sets, 0, true), ours);
}

TEST(DeterministicRefusal, ARepackedWeightIsNamed) {
  const ModelPointer model = load_model(model_of("Q4_0"));
  RawContext context(model.get(), {.deterministic = true});
  const std::string reason = context.grafter().uncovered_matmul();
  EXPECT_NE(reason.find("blk.0.attn_q.weight (q4_0)"), std::string::npos) << reason;
  EXPECT_NE(reason.find("without extra buffers"), std::string::npos) << reason;
  StepPlan plan;
  add_row(plan, 0, 0, true, context.n_vocab());
  EXPECT_NE(context.decode(plan), 0);
  EXPECT_NE(context.grafter().last_error().find(reason), std::string::npos);
}

TEST(DeterministicRefusal, AttentionByMatmulsIsNamed) {
  const ModelPointer model = load_model(model_of("F32"), false);
  RawContext context(model.get(), {.deterministic = true, .flash_attention = false});
  const std::string reason = context.grafter().uncovered_matmul();
  EXPECT_EQ(reason.rfind("kq-0 with ", 0), 0U) << reason;
}

TEST(DeterministicEngine, NeedsWeightsThatAreNotRepacked) {
  for (const bool repack : {true, false}) {
    auto model = Model::load({.path = model_of("Q4_0"), .use_extra_buffers = repack});
    ASSERT_TRUE(model) << model.error().message;
    const auto engine = Engine::create(
        **model,
        {.n_ctx = 256, .max_seqs = 2, .n_batch = 64, .n_threads = 1, .deterministic = true});
    EXPECT_EQ(static_cast<bool>(engine), !repack);
    if (engine) {
      EXPECT_GT((*engine)->grafter().stats().n_exact_matmuls, 0);
      continue;
    }
    EXPECT_EQ(engine.error().code, ErrorCode::kNotSupported);
    EXPECT_NE(engine.error().message.find("blk.0.attn_q.weight (q4_0)"), std::string::npos)
        << engine.error().message;
  }
}

}  // namespace
}  // namespace graft::testing
