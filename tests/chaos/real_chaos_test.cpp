// The part of the chaos run on a real model: 500 requests on SmolLM2 with Q8_0 weights, adapters
// with random factors and the trained ones of the examples. chaos_test.cpp has the rest.
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/testing/sanitized.h"
#include "chaos/chaos_run.h"
#include "support/test_files.h"

namespace graft {
namespace {

TEST(RealChaosTest, EveryAnswerIsTheOneThatItsContentGivesAlone) {
  init_log({.level = LogLevel::kOff});
  const std::string path = cached_model("SmolLM2-135M-Instruct-Q8_0.gguf");
  const auto model = load_model(path);
  const auto alone = load_model(path);
  ModuleContents contents(model->base());
  for (const std::string name : {"pirate", "json"}) {
    contents.add_copy(source_file("examples/adapters/" + name));
  }
  for (std::uint32_t seed = 1; seed <= 2; ++seed) {
    contents.add_random({.seed = seed, .rank = seed});
  }
  contents.add_broken();

  ChaosOptions options;
  options.rig = {.engine = {.n_ctx = 256, .max_seqs = 16, .n_batch = 64, .n_threads = 1}};
  options.rig.loop.n_headroom_cells = 0;
  options.rig.loop.n_prefill_beside_decode = 48;
  options.names = {"a", "b", "c"};
  options.n_rounds = kSanitized ? 2 : 5;
  options.n_requests_a_round = kSanitized ? 25 : 100;
  options.requests.scales = {1, -0.5F};
  options.requests.n_prompts = 3;
  options.requests.n_stems = 1;
  options.requests.max_stem_tokens = 24;
  options.requests.max_tokens = 16;
  options.max_pause = std::chrono::milliseconds(400);
  const ChaosCounts counts = ChaosRun(*model, *alone, contents, options).run();
  std::cout << summary(counts) << std::endl;
  expect_all_kinds(counts);
  EXPECT_GT(counts.n_preempted, 0);
  if (!kSanitized) {
    EXPECT_LT(counts.memory_growth_bytes, std::int64_t{32} << 20);
  }
}

}  // namespace
}  // namespace graft
