// A long run of everything at once on the counting model: 19,500 requests while modules come and
// go, in plenty of memory, in too little, and with a prefix cache that copies out and back. The
// real model's part is real_chaos_test.cpp.
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

class ChaosTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { init_log({.level = LogLevel::kOff}); }

  ChaosTest()
      : model_(load_model(source_file("tests/synthetic/counting.gguf"))),
        alone_(load_model(source_file("tests/synthetic/counting.gguf"))),
        contents_(model_->base()) {
    for (std::uint32_t seed = 1; seed <= 12; ++seed) {
      contents_.add_random({.seed = seed, .rank = 1 + seed % 5, .strength = 0.3F});
    }
    for (const std::string name : {"step2", "back", "upper"}) {
      contents_.add_copy(source_file("tests/synthetic/adapters/" + name));
    }
    contents_.add_broken();
  }

  ChaosCounts run(const RigOptions& rig, std::uint32_t seed) {
    ChaosOptions options;
    options.rig = rig;
    options.seed = seed;
    options.n_rounds = kSanitized ? 5 : 13;
    options.n_requests_a_round = kSanitized ? 130 : 500;
    const ChaosCounts counts = ChaosRun(*model_, *alone_, contents_, options).run();
    std::cout << summary(counts) << std::endl;
    expect_all_kinds(counts);
    EXPECT_GT(counts.churn.n_tried, 0);
    if (!kSanitized) {
      EXPECT_LT(counts.memory_growth_bytes, std::int64_t{16} << 20);
    }
    return counts;
  }
  static RigOptions options(std::int32_t n_ctx) {
    return {.engine = {.n_ctx = n_ctx, .max_seqs = 8, .n_batch = 64, .n_threads = 1}};
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Model> alone_;
  ModuleContents contents_;
};

TEST_F(ChaosTest, InPlentyOfMemory) { run(options(2048), 1); }

TEST_F(ChaosTest, InTooLittleMemory) {
  RigOptions tight = options(256);
  tight.loop.n_headroom_cells = 0;
  const ChaosCounts counts = run(tight, 2);
  EXPECT_GT(counts.n_preempted, 0);
  EXPECT_GT(counts.serving.n_preemptions, 0);
}

TEST_F(ChaosTest, WithCopiesOutAndBack) {
  RigOptions warm = options(512);
  warm.loop.n_headroom_cells = 0;
  warm.loop.prefix_cache.n_block_tokens = 16;
  warm.loop.prefix_cache.min_save_gain = 0;
  warm.loop.prefix_cache.max_hot_cells = 64;
  warm.loop.prefix_cache.max_warm_bytes = 1 << 16;
  const ChaosCounts counts = run(warm, 3);
  EXPECT_GT(counts.serving.n_prefix_warm_hits, 0);
  EXPECT_GT(counts.serving.n_prefix_warm_evictions, 0);
}

}  // namespace
}  // namespace graft
