// Answers from cached prefixes are the answers of a cold run in every bit: hot and warm, with
// modules, beside other requests, in fragmented memory, after preemption. And what must never be
// shared is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "modules/formats/read_adapter.h"
#include "support/random_adapter.h"
#include "support/request_mix.h"
#include "support/test_files.h"

namespace graft {
namespace {

using Modules = std::vector<std::shared_ptr<const ModuleVersion>>;

class PrefixCacheTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = load_model(source_file("tests/synthetic/counting.gguf")).release();
  }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }

  static RigOptions options(bool enabled, std::int32_t n_ctx = 2048) {
    RigOptions rig = {.engine = {.n_ctx = n_ctx, .max_seqs = 8, .n_batch = 64, .n_threads = 1}};
    rig.loop.prefix_cache.enabled = enabled;
    return rig;
  }
  // Small blocks, and everything is worth saving: tiny models compute as fast as they copy.
  static RigOptions warm_options(std::int32_t max_hot_cells) {
    RigOptions rig = options(true);
    rig.loop.prefix_cache.n_block_tokens = 16;
    rig.loop.prefix_cache.min_save_gain = 0;
    rig.loop.prefix_cache.max_hot_cells = max_hot_cells;
    return rig;
  }

  static std::vector<TokenId> random_tokens(std::mt19937& random, std::size_t n) {
    std::vector<TokenId> tokens;
    const auto n_vocab = static_cast<std::uint32_t>(model_->vocabulary().size());
    for (std::size_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(random() % n_vocab));
    return tokens;
  }
  static GenerationRequest ask_for(std::vector<TokenId> prompt, std::int32_t max_tokens = 6) {
    static RequestId next_id = 1;
    GenerationRequest request;
    request.id = next_id++;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.n_logprobs = 3;
    request.stop.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    return request;
  }
  static std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  static AttachmentSet with(const std::shared_ptr<const ModuleVersion>& module, float scale = 1,
                            std::int32_t start = 0) {
    AttachmentSet set;
    set.attachments.push_back({module, scale, start});
    return set;
  }
  static std::shared_ptr<const ModuleVersion> module(std::uint32_t seed) {
    return make_random_module(model_->base(), {.seed = seed, .rank = 3, .strength = 0.3F});
  }

  // Requests that share beginnings: eight stems, each cut and continued at random.
  static std::vector<MixedRequest> sharing_mix(const Modules& modules, std::uint32_t seed,
                                               int n_requests) {
    std::mt19937 random(seed);
    std::vector<std::vector<TokenId>> stems;
    for (int i = 0; i < 8; ++i) stems.push_back(random_tokens(random, 100));
    auto mix = make_mix(*model_, modules, {.seed = seed, .n_requests = n_requests});
    for (MixedRequest& mixed : mix) {
      std::vector<TokenId> stem = stems[random() % stems.size()];
      stem.resize(20 + random() % 80);
      mixed.request.prompt = joined(stem, random_tokens(random, 1 + random() % 30));
      if (!mixed.attachments.empty() && random() % 2 == 0) {
        mixed.attachments.attachments[0].start_position = static_cast<std::int32_t>(random() % 60);
      }
    }
    return mix;
  }

  static void expect_all_free(ServingRig& rig) {
    rig.stop();
    rig.engine().check_invariants();
    EXPECT_EQ(rig.engine().cells().n_free(), rig.engine().cells().n_cells());
    EXPECT_EQ(rig.engine().n_free_sequences(), rig.engine().max_sequences());
  }

  static Model* model_;
};

Model* PrefixCacheTest::model_ = nullptr;

TEST_F(PrefixCacheTest, ARepeatedBeginningIsNotComputedAgain) {
  std::mt19937 random(1);
  const auto stem = random_tokens(random, 120);
  const auto first = joined(stem, random_tokens(random, 10));
  const auto second = joined(stem, random_tokens(random, 9));
  ServingRig cold(*model_, options(false));
  ServingRig rig(*model_, options(true));
  const Answer a = rig.ask(ask_for(first));
  EXPECT_EQ(a.n_cached_tokens, 0);
  const std::int64_t n_computed = rig.loop().counters().n_prompt_tokens;
  const Answer b = rig.ask(ask_for(second));
  EXPECT_EQ(b.n_cached_tokens, 120);
  EXPECT_EQ(rig.loop().counters().n_prompt_tokens - n_computed, 9);
  const Answer again = rig.ask(ask_for(first));
  EXPECT_EQ(again.n_cached_tokens, 129);  // all but the token whose logits are needed
  EXPECT_TRUE(a.same_as(cold.ask(ask_for(first))));
  EXPECT_TRUE(b.same_as(cold.ask(ask_for(second))));
  EXPECT_TRUE(again.same_as(a));
  EXPECT_EQ(cold.ask(ask_for(first)).n_cached_tokens, 0);
  const ServingSnapshot counters = rig.loop().counters();
  EXPECT_EQ(counters.n_prefix_hot_hits, 2);
  EXPECT_EQ(counters.n_prefix_misses, 1);
  EXPECT_EQ(counters.n_prefix_hit_tokens, 249);
  EXPECT_GT(counters.n_prefix_hot_bytes, 0);
  expect_all_free(rig);
}

TEST_F(PrefixCacheTest, AConversationGoesOnFromItsGeneratedTokens) {
  std::mt19937 random(2);
  ServingRig rig(*model_, options(true));
  ServingRig cold(*model_, options(false));
  auto prompt = random_tokens(random, 40);
  for (int turn = 0; turn < 4; ++turn) {
    const Answer answer = rig.ask(ask_for(prompt, 30));
    EXPECT_TRUE(answer.same_as(cold.ask(ask_for(prompt, 30)))) << "turn " << turn;
    // The last token was never computed; the words before it were.
    const std::int32_t n_expected = turn == 0 ? 0 : answer.n_prompt_tokens - 5 - 1;
    EXPECT_EQ(answer.n_cached_tokens, n_expected);
    prompt = joined(joined(prompt, answer.tokens), random_tokens(random, 5));
  }
}

TEST_F(PrefixCacheTest, CachedAnswersAreTheColdOnesInAnyCompany) {
  const Modules modules = {module(1), module(2), module(3)};
  std::int64_t n_hits = 0;
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    const auto mix = sharing_mix(modules, seed, 60);
    ServingRig cold(*model_, options(false));
    const auto expected = answer_alone(cold, mix);
    // Plenty of room, and so little that cells are evicted, preempted and fragmented throughout.
    for (const std::int32_t n_ctx : {2048, 256}) {
      RigOptions tight = options(true, n_ctx);
      tight.loop.n_headroom_cells = 0;
      tight.loop.prefix_cache.max_hot_cells = n_ctx / 2;
      ServingRig rig(*model_, tight);
      expect_same(expected, answer_together(rig, mix, seed), "seed " + std::to_string(seed));
      n_hits += rig.loop().counters().n_prefix_hot_hits;
      expect_all_free(rig);
    }
  }
  EXPECT_GT(n_hits, 10);
}

TEST_F(PrefixCacheTest, WhatWasCopiedOutAndBackGivesTheSameBits) {
  const Modules modules = {module(1), module(2)};
  const auto mix = sharing_mix(modules, 7, 60);
  ServingRig cold(*model_, options(false));
  const auto expected = answer_alone(cold, mix);
  ServingRig rig(*model_, warm_options(160));
  expect_same(expected, answer_alone(rig, mix), "one after the other");
  EXPECT_GT(rig.loop().counters().n_prefix_warm_hits, 5);
  EXPECT_GT(rig.loop().counters().n_prefix_warm_bytes, 0);
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    expect_same(expected, answer_together(rig, mix, seed), "together");
  }
  expect_all_free(rig);
}

TEST_F(PrefixCacheTest, WarmBlocksComeBackBehindHotOnesAndFromLittleMemory) {
  const auto mix = sharing_mix({module(1)}, 9, 50);
  ServingRig cold(*model_, options(false));
  const auto expected = answer_alone(cold, mix);
  RigOptions tight = warm_options(64);
  tight.engine.n_ctx = 256;
  tight.loop.n_headroom_cells = 0;
  tight.loop.prefix_cache.max_warm_bytes = 1 << 15;  // evicts there too
  ServingRig rig(*model_, tight);
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    expect_same(expected, answer_together(rig, mix, seed), "seed " + std::to_string(seed));
  }
  EXPECT_GT(rig.loop().counters().n_prefix_warm_hits, 0);
  EXPECT_GT(rig.loop().counters().n_prefix_warm_evictions, 0)
      << rig.loop().counters().n_prefix_warm_bytes << " bytes";
  EXPECT_LE(rig.loop().counters().n_prefix_warm_bytes, 1 << 15);
  expect_all_free(rig);
}

// CVE-2025-46570 (vLLM): the time to a first token told what prompts other tenants had sent.
// CVE-2025-25183: prefixes were told apart by a hash that could be made to collide; ours are
// compared token by token.
TEST_F(PrefixCacheTest, Cve202546570RequestsOfOtherModulesTenantsAndSaltsShareNothing) {
  std::mt19937 random(4);
  const auto prompt = random_tokens(random, 80);
  ServingRig rig(*model_, options(true));
  const auto ask = [&](const AttachmentSet& set, const std::string& tenant = "",
                       const std::string& salt = "") {
    auto sink = std::make_shared<CollectingSink>();
    GenerationRequest request = ask_for(prompt);
    request.prefix_cache.salt = salt;
    EXPECT_TRUE(rig.loop().submit({request, set, sink, tenant}));
    return sink->wait();
  };
  const auto one = module(1);
  const auto two = module(2);
  const Answer base = ask({});
  const Answer a = ask(with(one));
  EXPECT_EQ(a.n_cached_tokens, 0);
  EXPECT_FALSE(a.same_as(base)) << "a module that changes nothing proves nothing";
  EXPECT_EQ(ask(with(two)).n_cached_tokens, 0);
  EXPECT_EQ(ask(with(one, 0.5F)).n_cached_tokens, 0);
  const Answer again = ask(with(one));  // A, other, A'
  EXPECT_EQ(again.n_cached_tokens, 79);
  EXPECT_TRUE(again.same_as(a));
  EXPECT_EQ(ask({}, "tenant").n_cached_tokens, 0);
  EXPECT_EQ(ask({}, "tenant").n_cached_tokens, 79);
  EXPECT_EQ(ask({}, "", "salt").n_cached_tokens, 0);
  EXPECT_EQ(ask({}, "", "tenant").n_cached_tokens, 0) << "a salt is no tenant";
  EXPECT_EQ(ask({}, "tenant", "salt").n_cached_tokens, 0);
  EXPECT_EQ(ask({}, "tenan", "tsalt").n_cached_tokens, 0);
  EXPECT_EQ(ask({}, "", "salt").n_cached_tokens, 79);
  EXPECT_TRUE(ask({}).same_as(base));
}

TEST_F(PrefixCacheTest, TheSameNameWithNewContentIsAnotherModule) {
  std::mt19937 random(5);
  const auto prompt = random_tokens(random, 80);
  const auto renamed = [](const std::shared_ptr<const ModuleVersion>& module) {
    auto version = std::make_shared<ModuleVersion>(*module);
    version->name = "same";
    return version;
  };
  ServingRig rig(*model_, options(true));
  ServingRig cold(*model_, options(false));
  const auto old_content = module(1);
  const auto new_content = module(2);
  rig.ask(ask_for(prompt), with(renamed(old_content)));
  const Answer other = rig.ask(ask_for(prompt), with(renamed(new_content)));
  EXPECT_EQ(other.n_cached_tokens, 0);
  EXPECT_TRUE(other.same_as(cold.ask(ask_for(prompt), with(new_content))));
  // The same content under another name is the same.
  EXPECT_EQ(rig.ask(ask_for(prompt), with(new_content)).n_cached_tokens, 79);
}

TEST_F(PrefixCacheTest, EntriesGoWithTheModuleTheyDependOn) {
  std::mt19937 random(6);
  const auto prompt = random_tokens(random, 80);
  ServingRig rig(*model_, options(true));
  auto short_lived = module(11);
  rig.ask(ask_for(prompt), with(short_lived));
  EXPECT_EQ(rig.ask(ask_for(prompt), with(short_lived)).n_cached_tokens, 79);
  short_lived.reset();
  rig.ask(ask_for(random_tokens(random, 3)));  // releases what nobody holds
  EXPECT_LT(rig.loop().counters().n_prefix_hot_cells, 20);
  EXPECT_EQ(rig.ask(ask_for(prompt), with(module(11))).n_cached_tokens, 0);
}

TEST_F(PrefixCacheTest, AModuleThatActsFromAPositionSharesTheBaseBeforeIt) {
  std::mt19937 random(7);
  const auto prompt = random_tokens(random, 90);
  const auto late = with(module(1), 1, 50);
  const auto later = with(module(1), 1, 60);
  ServingRig rig(*model_, options(true));
  ServingRig cold(*model_, options(false));
  rig.ask(ask_for(prompt));
  const Answer a = rig.ask(ask_for(prompt), late);
  EXPECT_EQ(a.n_cached_tokens, 50);
  EXPECT_TRUE(a.same_as(cold.ask(ask_for(prompt), late)));
  EXPECT_EQ(rig.ask(ask_for(prompt), late).n_cached_tokens, 89);
  const Answer b = rig.ask(ask_for(prompt), later);
  EXPECT_EQ(b.n_cached_tokens, 60);
  EXPECT_TRUE(b.same_as(cold.ask(ask_for(prompt), later)));
  EXPECT_EQ(rig.ask(ask_for(prompt), with(module(1))).n_cached_tokens, 0);
}

TEST_F(PrefixCacheTest, ARequestMayNeitherReadNorWrite) {
  std::mt19937 random(8);
  const auto prompt = random_tokens(random, 60);
  ServingRig rig(*model_, options(true));
  GenerationRequest request = ask_for(prompt);
  request.prefix_cache.may_write = false;
  rig.ask(request);
  request = ask_for(prompt);
  request.prefix_cache.may_read = false;
  EXPECT_EQ(rig.ask(request).n_cached_tokens, 0);
  request = ask_for(prompt);
  request.prefix_cache.may_read = false;
  EXPECT_EQ(rig.ask(request).n_cached_tokens, 0) << "it may not read what it wrote";
  EXPECT_EQ(rig.ask(ask_for(prompt)).n_cached_tokens, 59);
}

TEST_F(PrefixCacheTest, LiveRequestsGetTheCellsThatAreOnlyCached) {
  std::mt19937 random(9);
  RigOptions small = options(true, 256);
  small.loop.prefix_cache.max_hot_cells = 256;
  ServingRig rig(*model_, small);
  for (int i = 0; i < 10; ++i) {
    const Answer answer = rig.ask(ask_for(random_tokens(random, 240), 10));
    EXPECT_EQ(answer.end, Answer::End::kLength);
    EXPECT_EQ(answer.n_preemptions, 0);
  }
  EXPECT_GT(rig.loop().counters().n_prefix_hot_evictions, 5);
  expect_all_free(rig);
}

TEST_F(PrefixCacheTest, APreemptedRequestGoesOnFromItsCachedCells) {
  std::mt19937 random(10);
  RigOptions tight = options(true, 256);
  tight.loop.n_headroom_cells = 0;
  tight.loop.prefix_cache.max_hot_cells = 256;
  ServingRig rig(*model_, tight);
  ServingRig cold(*model_, options(false));
  std::vector<MixedRequest> mix;
  for (int i = 0; i < 3; ++i) mix.push_back({ask_for(random_tokens(random, 70), 60), {}});
  const auto expected = answer_alone(cold, mix);
  const auto actual = answer_together(rig, mix, 1);
  expect_same(expected, actual, "preempted");
  const ServingSnapshot counters = rig.loop().counters();
  EXPECT_GT(counters.n_preemptions, 0);
  EXPECT_GT(counters.n_prefix_hot_hits, 0);
  // Without the cache a preempted request computes at least its whole prompt again.
  EXPECT_LT(counters.n_prompt_tokens, 3 * 70 + 70 * counters.n_preemptions);
}

}  // namespace
}  // namespace graft
