#include "engine/engine_options.h"

#include <gtest/gtest.h>

namespace graft {
namespace {

BaseModel small_base() {
  BaseModel base;
  base.n_layers = 2;
  base.n_heads = base.n_heads_kv = 4;
  base.head_dim_k = base.head_dim_v = 64;
  return base;
}

TEST(EngineOptions, RoundsTheContextAndFillsInThreads) {
  const auto options = check_options({.n_ctx = 300, .max_seqs = 8, .n_batch = 512}, small_base());
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->n_ctx, 512);
  EXPECT_EQ(options->n_batch, 512);
  EXPECT_GE(options->n_threads, 1);
}

TEST(EngineOptions, ABatchIsNoLargerThanTheContext) {
  const auto options = check_options({.n_ctx = 200, .max_seqs = 8, .n_batch = 512}, small_base());
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->n_ctx, 256);
  EXPECT_EQ(options->n_batch, 256);
}

// Each of these makes libllama abort the process or refuse without a reason.
TEST(EngineOptions, RefusesWhatLibllamaCannotTake) {
  const BaseModel base = small_base();
  EXPECT_FALSE(check_options({.max_seqs = 64, .n_batch = 32}, base));
  EXPECT_FALSE(check_options({.max_seqs = 0}, base));
  EXPECT_FALSE(check_options({.max_seqs = 129}, base));
  EXPECT_FALSE(check_options({.n_ctx = 0}, base));
  EXPECT_FALSE(check_options({.n_ctx = -5}, base));
  EXPECT_FALSE(check_options({.n_threads = 513}, base));
  EXPECT_FALSE(check_options({.n_threads = -1}, base));
  EXPECT_FALSE(check_options({.poll = 101}, base));
  const auto error = check_options({.max_seqs = 64, .n_batch = 32}, base).error();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message, "the number of rows per step is 32; it must be 64 to 65536");
}

TEST(EngineOptions, DeterministicNeedsOurAttention) {
  EXPECT_TRUE(check_options({.deterministic = true}, small_base()));
  const auto refused = check_options({.attention = false, .deterministic = true}, small_base());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST(EngineOptions, QuantisedKeysNeedWholeBlocks) {
  BaseModel base = small_base();
  EXPECT_TRUE(check_options({.kv_type = KvType::kQ8_0}, base));
  base.head_dim_k = 80;
  EXPECT_FALSE(check_options({.kv_type = KvType::kQ8_0}, base));
}

TEST(EngineOptions, RefusesAContextThatNoMachineHasMemoryFor) {
  BaseModel base = small_base();
  base.n_layers = 10000;
  base.n_heads_kv = 1000;
  const auto options = check_options({.n_ctx = 1 << 24}, base);
  ASSERT_FALSE(options);
  EXPECT_NE(options.error().message.find("MiB"), std::string::npos);
}

}  // namespace
}  // namespace graft
