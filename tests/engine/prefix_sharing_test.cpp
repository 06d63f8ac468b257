// The prefix cache over many requests: choices that share one prompt, hit rates as a list in order
// of use has them, thousands of entries that come and go, and sliding windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/prefix_cache.h"
#include "support/random_adapter.h"
#include "support/request_mix.h"
#include "support/test_files.h"

namespace graft {
namespace {

GenerationRequest ask_for(std::vector<TokenId> prompt, std::int32_t max_tokens) {
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

std::vector<TokenId> random_tokens(const Model& model, std::mt19937& random, std::size_t n) {
  std::vector<TokenId> tokens;
  const auto n_vocab = static_cast<std::uint32_t>(model.vocabulary().size());
  for (std::size_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(random() % n_vocab));
  return tokens;
}

class PrefixSharingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = load_model(source_file("tests/synthetic/counting.gguf")).release();
  }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }
  static RigOptions options(bool enabled, std::int32_t n_ctx) {
    RigOptions rig = {.engine = {.n_ctx = n_ctx, .max_seqs = 8, .n_batch = 64, .n_threads = 1}};
    rig.loop.prefix_cache.enabled = enabled;
    return rig;
  }
  // `n` choices of one prompt that differ in their seeds.
  static std::vector<GenerationRequest> choices(const std::vector<TokenId>& prompt, int n) {
    std::vector<GenerationRequest> group;
    for (int i = 0; i < n; ++i) {
      group.push_back(ask_for(prompt, 8 + i));
      group.back().sampling.temperature = 1;
      group.back().sampling.seed = static_cast<std::uint32_t>(100 + i);
    }
    return group;
  }

  static Model* model_;
};

Model* PrefixSharingTest::model_ = nullptr;

TEST_F(PrefixSharingTest, ChoicesOfAGroupComputeTheirPromptOnce) {
  std::mt19937 random(1);
  for (const bool enabled : {true, false}) {
    ServingRig cold(*model_, options(false, 1024));
    ServingRig rig(*model_, options(enabled, 1024));
    const auto group = choices(random_tokens(*model_, random, 150), 5);
    std::vector<Answer> answers;
    for (const auto& sink : rig.submit_group(group, {})) answers.push_back(sink->wait());
    EXPECT_EQ(rig.loop().counters().n_prompt_tokens, 150);
    std::vector<Answer> expected;
    for (const auto& choice : group) expected.push_back(cold.ask(choice));
    expect_same(expected, answers, "a group");
    EXPECT_FALSE(answers[0].same_as(answers[1]));
    rig.stop();
    rig.engine().check_invariants();
    EXPECT_EQ(rig.engine().cells().n_free(), 1024);
    EXPECT_EQ(rig.engine().n_free_sequences(), 8);
  }
}

TEST_F(PrefixSharingTest, AGroupOutlivesTheChoiceThatComputesItsPrompt) {
  std::mt19937 random(2);
  RigOptions slow = options(true, 1024);
  slow.loop.max_rows = 8;
  ServingRig rig(*model_, slow);
  ServingRig cold(*model_, options(false, 1024));
  for (int n_cancelled = 1; n_cancelled <= 3; ++n_cancelled) {
    const auto group = choices(random_tokens(*model_, random, 400), 4);
    const auto sinks = rig.submit_group(group, {});
    for (int i = 0; i < n_cancelled; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      rig.loop().cancel(group[static_cast<std::size_t>(i)].id);
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Answer answer = sinks[i]->wait();
      if (static_cast<int>(i) < n_cancelled) continue;  // perhaps it was faster than its end
      EXPECT_TRUE(answer.same_as(cold.ask(group[i]))) << "choice " << i;
    }
  }
  rig.stop();
  rig.engine().check_invariants();
  EXPECT_EQ(rig.engine().cells().n_free(), 1024);
}

TEST_F(PrefixSharingTest, AGroupThatCanNeverFitIsRefusedAtOnce) {
  std::mt19937 random(3);
  ServingRig rig(*model_, options(true, 256));
  const auto refused = [&](const std::vector<GenerationRequest>& group) {
    const Answer answer = rig.submit_group(group, {})[0]->wait();
    return answer.end == Answer::End::kFailed && answer.error.code == ErrorCode::kInvalidArgument &&
           answer.error.param == "n";
  };
  EXPECT_TRUE(refused(choices(random_tokens(*model_, random, 4), 9)));
  EXPECT_TRUE(refused(choices(random_tokens(*model_, random, 250), 8)));
  EXPECT_FALSE(refused(choices(random_tokens(*model_, random, 249), 8)));
}

TEST_F(PrefixSharingTest, GroupsAndSinglesUnderPressureGetTheirColdAnswers) {
  std::mt19937 random(4);
  RigOptions tight = options(true, 512);
  tight.loop.n_headroom_cells = 0;
  ServingRig rig(*model_, tight);
  ServingRig cold(*model_, options(false, 512));
  std::vector<std::vector<GenerationRequest>> groups;
  std::vector<std::vector<std::shared_ptr<CollectingSink>>> sinks;
  for (int i = 0; i < 20; ++i) {
    const int n = 1 + static_cast<int>(random() % 5);
    auto group = choices(random_tokens(*model_, random, 20 + random() % 150), n);
    for (auto& choice : group) choice.stop.max_tokens += static_cast<std::int32_t>(random() % 50);
    sinks.push_back(rig.submit_group(group, {}));
    groups.push_back(std::move(group));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].size(); ++i) {
      EXPECT_TRUE(sinks[g][i]->wait().same_as(cold.ask(groups[g][i]))) << g << ", " << i;
    }
  }
  EXPECT_GT(rig.loop().counters().n_preemptions, 0);
  rig.stop();
  rig.engine().check_invariants();
  EXPECT_EQ(rig.engine().cells().n_free(), 512);
}

// What the cache does with its tenants' shares, as a plain list in order of use.
class SimulatedLru {
 public:
  explicit SimulatedLru(std::size_t room) : room_(room) {}
  bool use(int key, int tenant) {
    const auto found = std::find_if(used_.begin(), used_.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    const bool hit = found != used_.end();
    if (hit) used_.erase(found);
    if (!hit && used_.size() == room_) evict(tenant);
    used_.emplace_front(key, tenant);
    return hit;
  }

 private:
  // From the end, the first whose tenant would have its share of the list or more.
  void evict(int newcomer) {
    std::map<int, std::size_t> n_of;
    for (const auto& [key, tenant] : used_) ++n_of[tenant];
    ++n_of[newcomer];
    for (auto entry = used_.rbegin(); entry != used_.rend(); ++entry) {
      if (n_of[entry->second] * n_of.size() < room_ + 1) continue;
      used_.erase(std::next(entry).base());
      return;
    }
  }

  std::size_t room_;
  std::list<std::pair<int, int>> used_;  // latest first
};

TEST_F(PrefixSharingTest, HitsAsOftenAsASimulatedListAndAnswersAsACold) {
  constexpr int kPrefixes = 500;
  constexpr int kTenants = 16;
  constexpr int kModules = 8;
  constexpr int kRequests = 2000;
  constexpr std::int32_t kTokens = 24;  // of a prefix; with its question 28
  constexpr std::int32_t kRoom = 120;   // prefixes
  std::mt19937 random(5);
  std::vector<std::shared_ptr<const ModuleVersion>> modules;
  for (std::uint32_t i = 0; i < kModules; ++i) {
    modules.push_back(make_random_module(model_->base(), {.seed = i + 1, .rank = 2}));
  }
  std::vector<std::vector<TokenId>> prefixes;
  for (int i = 0; i < kPrefixes; ++i) prefixes.push_back(random_tokens(*model_, random, kTokens));

  RigOptions cached = options(true, 8192);
  cached.loop.prefix_cache.max_hot_cells = kRoom * (kTokens + 4);
  cached.loop.prefix_cache.max_warm_bytes = 0;
  cached.loop.prefix_cache.half_life = 0.1;  // the least recently used goes first
  ServingRig rig(*model_, cached);
  ServingRig cold(*model_, options(false, 1024));
  SimulatedLru simulated(kRoom);
  int n_hits = 0;
  int n_simulated = 0;
  for (int i = 0; i < kRequests; ++i) {
    const double u = static_cast<double>(random() % 10000) / 10000;
    const int key = static_cast<int>(kPrefixes * u * u);  // some are wanted more than others
    std::vector<TokenId> prompt = prefixes[static_cast<std::size_t>(key)];
    for (const TokenId token : random_tokens(*model_, random, 4)) prompt.push_back(token);
    const GenerationRequest request = ask_for(prompt, 1);
    AttachmentSet set;
    set.attachments.push_back({modules[static_cast<std::size_t>(key % kModules)], 1, 0});
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(rig.loop().submit({request, set, sink, std::to_string(key % kTenants)}));
    const Answer answer = sink->wait();
    n_hits += answer.n_cached_tokens >= kTokens ? 1 : 0;
    n_simulated += simulated.use(key, key % kTenants) ? 1 : 0;
    if (i % 3 != 0) continue;
    EXPECT_TRUE(answer.same_as(cold.ask(request, set))) << "request " << i;
  }
  EXPECT_NEAR(n_hits, n_simulated, kRequests / 100);
  EXPECT_GT(n_hits, kRequests / 4);
  EXPECT_LT(n_hits, kRequests * 9 / 10);
}

// Entries without a model's work: one sequence lends its cells to every path.
TEST_F(PrefixSharingTest, TenThousandEntriesComeAndGoWithoutALeak) {
  constexpr std::int32_t kMost = 90;
  const auto made =
      Engine::create(*model_, {.n_ctx = 1024, .max_seqs = 4, .n_batch = 128, .n_threads = 1});
  ASSERT_TRUE(made) << made.error().message;
  Engine& engine = **made;
  PrefixCacheOptions options;
  options.n_block_tokens = 16;
  options.min_save_gain = 0;
  options.max_warm_bytes = 1 << 20;
  PrefixCache cache(engine, options);
  const std::int32_t lender = engine.acquire_sequence().value_or(-1);
  StepPlan plan;
  for (std::int32_t i = 0; i < kMost; ++i) {
    plan.rows.push_back(
        {.token = 1, .position = i, .sequence = lender, .is_output = i + 1 == kMost, .set = -1});
  }
  ASSERT_EQ(engine.step(plan).kind, StepOutcome::kDone);
  std::mt19937 random(6);
  std::vector<std::vector<TokenId>> stems;
  for (int i = 0; i < 12; ++i) stems.push_back(random_tokens(*model_, random, 40));
  const std::vector<RoleRun> base = {{0, ""}};
  const std::vector<RoleRun> late = {{0, ""}, {20, "module"}};
  for (int cycle = 0; cycle < 10000; ++cycle) {
    std::vector<TokenId> tokens = stems[random() % stems.size()];
    tokens.resize(10 + random() % 30);
    for (const TokenId token : random_tokens(*model_, random, 10 + random() % 40)) {
      tokens.push_back(token);
    }
    const std::string tenant = std::to_string(random() % 3);
    const PrefixPath path{tenant, tenant, tokens, random() % 2 == 0 ? base : late};
    const std::int32_t live = engine.acquire_sequence().value_or(-1);
    const PrefixMatch match = cache.find(path);
    const std::int32_t n_shared = cache.attach(path, match, live);
    cache.begin_copies();
    if (cache.is_restoring(live)) {
      EXPECT_NE(cache.restore(live, 0).kind, RestoreProgress::kBroken);
    }
    EXPECT_EQ(n_shared, match.n_hot);
    cache.insert(path, lender);
    if (random() % 4 == 0) cache.make_room(static_cast<std::int32_t>(random() % 1024));
    cache.save();
    cache.cancel_restore(live);
    engine.release_sequence(live);
    if (cycle % 100 != 0) continue;
    cache.check_invariants();
    engine.check_invariants();
  }
  EXPECT_GT(cache.stats().n_hot_evictions, 1000);
  EXPECT_GT(cache.stats().n_hot_hits, 1000);
  EXPECT_GT(cache.stats().n_warm_hits, 100);
  cache.clear();
  engine.release_sequence(lender);
  engine.check_invariants();
  EXPECT_EQ(engine.cells().n_free(), 1024);
}

// Windows of 8 tokens: libllama may reuse what a holder's end no longer sees.
TEST(PrefixSlidingWindow, CachedAnswersAreTheColdOnes) {
  auto loaded = Model::load(
      {.path = source_file("tests/golden/models/gemma3.gguf"), .use_extra_buffers = false});
  ASSERT_TRUE(loaded) << loaded.error().message;
  Model& model = **loaded;
  ASSERT_TRUE(model.facts().has_sliding_window);
  RigOptions cached = {
      .engine = {
          .n_ctx = 256, .max_seqs = 4, .n_batch = 64, .n_threads = 1, .deterministic = true}};
  RigOptions uncached = cached;
  uncached.loop.prefix_cache.enabled = false;
  cached.loop.n_headroom_cells = 0;
  cached.loop.prefix_cache.max_hot_cells = 200;
  ServingRig rig(model, cached);
  ServingRig cold(model, uncached);
  std::mt19937 random(7);
  std::vector<std::vector<TokenId>> stems;
  for (int i = 0; i < 3; ++i) stems.push_back(random_tokens(model, random, 50));
  std::vector<MixedRequest> mix;
  for (int i = 0; i < 40; ++i) {
    auto prompt = stems[random() % stems.size()];
    prompt.resize(20 + random() % 30);
    for (const TokenId token : random_tokens(model, random, 1 + random() % 20)) {
      prompt.push_back(token);
    }
    mix.push_back({ask_for(prompt, 5), {}});
  }
  const auto expected = answer_alone(cold, mix);
  expect_same(expected, answer_alone(rig, mix), "alone");
  expect_same(expected, answer_together(rig, mix, 1), "together");
  EXPECT_GT(rig.loop().counters().n_prefix_hot_hits, 0);
  rig.stop();
  rig.engine().check_invariants();
  EXPECT_EQ(rig.engine().cells().n_free(), 256);
}

}  // namespace
}  // namespace graft
