// A grafting device of type GPU: the same code that wraps a real GPU, here around the CPU device.
// Models are loaded on it by name, as on a GPU; modules become standard operations, attention is
// ggml's, and rows are compared with the plan by their number alone.
#include <ggml-backend.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/golden_cases.h"

namespace graft::testing {
namespace {

ggml_backend_device* device_around_the_cpu() {
  register_grafting_device();
  return grafting_device_around(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
}

class DeviceGolden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(DeviceGolden, AgreesWithPeft) {
  ggml_backend_device* device = device_around_the_cpu();
  // ggml's attention kernels round keys and queries to F16, which alone costs more than the
  // tolerance, so attention is computed by matrix products.
  GoldenPath at_once{.name = "at once", .our_attention = false, .device = device};
  GoldenPath in_pieces = at_once;
  in_pieces.name = "in pieces beside the base";
  in_pieces.chunk = 5;
  in_pieces.company = true;
  GoldenPath by_token = at_once;
  by_token.name = "token by token";
  by_token.chunk = 1;
  for (const GoldenPath& path : {at_once, in_pieces, by_token}) {
    EXPECT_LT(run_golden_case(GetParam(), path), kGoldenTolerance) << path.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DeviceGolden, ::testing::ValuesIn(read_golden_cases()),
                         golden_case_name);

const std::string kModel = "models/llama.gguf";

// Row i is token i of sequence i; every row is an output.
StepPlan first_tokens(std::int32_t n_sequences) {
  StepPlan plan;
  for (std::int32_t s = 0; s < n_sequences; ++s) plan.rows.push_back({3 + s, 0, s, true, -1});
  return plan;
}

RawOptions device_options(ggml_backend_device* device) {
  return {.n_ctx = 256,
          .n_batch = 8,
          .n_seqs = 4,
          .n_threads = 1,
          .device = device,
          .flash_attention = false,
          .cache_type = GGML_TYPE_F32};
}

TEST(Device, IsWhatTheModelIsLoadedOn) {
  ggml_backend_device* device = device_around_the_cpu();
  EXPECT_EQ(device, device_around_the_cpu());
  EXPECT_EQ(ggml_backend_dev_type(device), GGML_BACKEND_DEVICE_TYPE_GPU);
  EXPECT_STREQ(ggml_backend_dev_name(device), "GRAFT-CPU");
  EXPECT_EQ(golden_model(kModel, device).device(), device);
  EXPECT_EQ(golden_model(kModel).device(), nullptr);
}

// One computation per llama_decode: a graph in pieces would be refused, but cost speed before.
TEST(Device, ComputesAStepAtOnceAndLeavesAttentionAlone) {
  ggml_backend_device* device = device_around_the_cpu();
  RawContext context(golden_model(kModel, device).handle(), device_options(device));
  context.grafter().set_attention(true);  // must have no effect
  for (std::int32_t n = 1; n <= 4; ++n) {
    context.clear();
    const std::int64_t before = context.grafter().stats().n_computes;
    ASSERT_EQ(context.decode(first_tokens(n)), 0) << context.grafter().last_error();
    EXPECT_EQ(context.grafter().stats().n_computes, before + 1);
  }
  EXPECT_EQ(context.grafter().stats().n_attention_nodes, 0);
}

TEST(Device, RowsOfTheBaseKeepTheirBits) {
  ggml_backend_device* device = device_around_the_cpu();
  const Model& model = golden_model(kModel, device);
  const auto adapter = golden_adapter("adapters/llama_linear", model);
  RawContext context(model.handle(), device_options(device));
  StepPlan plan = first_tokens(3);
  ASSERT_EQ(context.decode(plan), 0);
  const auto base = context.logits(0);
  const auto other = context.logits(1);
  plan.sets = {{{adapter.get(), 1.0F, 0}}};
  plan.rows[1].set = 0;
  context.clear();
  ASSERT_EQ(context.decode(plan), 0) << context.grafter().last_error();
  EXPECT_GT(context.grafter().stats().n_module_nodes, 0);
  EXPECT_EQ(context.logits(0), base);
  EXPECT_GT(largest_difference(context.logits(1), other), 0.01);
  context.grafter().forget(adapter.get());
}

// Decodes `batch` while the grafter expects `plan`.
int decode_other(RawContext& context, const StepPlan& plan, std::vector<bool> is_output) {
  llama_batch batch = llama_batch_init(8, 0, 1);
  batch.n_tokens = static_cast<std::int32_t>(is_output.size());
  for (std::int32_t i = 0; i < batch.n_tokens; ++i) {
    batch.token[i] = 3;
    batch.pos[i] = 0;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = i;
    batch.logits[i] = is_output[static_cast<std::size_t>(i)] ? 1 : 0;
  }
  context.grafter().begin_step(plan);
  const int status = llama_decode(context.get(), batch);
  context.grafter().end_step();
  llama_batch_free(batch);
  return status;
}

TEST(Device, RefusesStepsWhoseRowCountsAreNotThePlans) {
  ggml_backend_device* device = device_around_the_cpu();
  RawContext context(golden_model(kModel, device).handle(), device_options(device));
  const StepPlan plan = first_tokens(2);
  EXPECT_NE(decode_other(context, plan, {true, true, true}), 0);
  EXPECT_EQ(context.grafter().last_error(), "the graph has 3 rows, the plan 2");
  context.clear();
  EXPECT_NE(decode_other(context, plan, {true, false}), 0);
  EXPECT_EQ(context.grafter().last_error(), "the graph has 1 output rows, the plan 2");
  context.clear();
  EXPECT_EQ(decode_other(context, plan, {true, true}), 0) << context.grafter().last_error();
}

// A context whose grafter is meant for the CPU must not have its graphs on a device rewritten.
TEST(Device, IsLeftAloneByAGrafterOfTheCpu) {
  ggml_backend_device* device = device_around_the_cpu();
  RawOptions options = device_options(nullptr);
  RawContext context(golden_model(kModel, device).handle(), options);
  ASSERT_EQ(context.decode(first_tokens(2)), 0);
  EXPECT_EQ(context.grafter().stats().n_computes, 0);
}

TEST(Device, EnginesRefuseWhatOnlyTheCpuCanDo) {
  auto model = Model::load({.path = golden_file(kModel), .device = device_around_the_cpu()});
  ASSERT_TRUE(model) << model.error().message;
  EngineOptions options{.n_ctx = 256, .max_seqs = 2, .n_batch = 32, .n_threads = 1};
  EXPECT_TRUE(Engine::create(**model, options));
  options.kv_type = KvType::kQ8_0;
  EXPECT_FALSE(Engine::create(**model, options));
  options.kv_type = KvType::kF16;
  options.deterministic = true;
  const auto engine = Engine::create(**model, options);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().message, "a GPU cannot compute deterministically");
}

TEST(Device, NoGpuIsAnErrorWithAName) {
  if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU) != nullptr) GTEST_SKIP();
  const auto device = grafting_gpu_device();
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().message.find("GRAFT_CUDA"), std::string::npos);
}

}  // namespace
}  // namespace graft::testing
