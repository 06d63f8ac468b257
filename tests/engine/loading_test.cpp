// Modules that come, change and go while requests run, on the counting model: every answer has the
// bits of the version that it began with, no load fails a request, and memory returns.
#include <gtest/gtest.h>

#include <unistd.h>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/sanitized.h"
#include "modules/formats/format_test_support.h"
#include "modules/store/module_store.h"
#include "scheduler/loop_trial.h"
#include "support/load_end.h"
#include "support/random_adapter.h"
#include "support/serving_rig.h"
#include "support/test_files.h"

namespace graft {
namespace {

namespace fs = std::filesystem;

class LoadingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = load_model(source_file("tests/synthetic/counting.gguf")).release();
  }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }

  void start(const RigOptions& options = small(), const TrialOptions& trial = {}) {
    rig_ = std::make_unique<ServingRig>(*model_, options);
    trial_ = std::make_unique<LoopTrial>(rig_->loop(), trial);
    ModuleStoreOptions store;
    store.base_names = {"base"};
    store.root = directory_.path();
    store.low_priority = false;  // a busy machine would let streams end before a load does
    store_ = ModuleStore::create(model_->base(), *trial_, store, {}).value();
  }
  static RigOptions small() {
    return {.engine = {.n_ctx = 8192, .max_seqs = 8, .n_batch = 128, .n_threads = 1}};
  }

  // The files of a synthetic adapter under another name; new ones replace old ones.
  void put(const std::string& name, const std::string& adapter) const {
    const fs::path to = fs::path(directory_.path()) / name;
    const fs::path fresh = fs::path(directory_.path()) / (name + ".new");
    fs::remove_all(fresh);
    fs::copy(source_file("tests/synthetic/adapters/" + adapter), fresh);
    fs::remove_all(to);
    fs::rename(fresh, to);
  }
  LoadWaiter::Loaded load(const std::string& name, bool in_place = false) {
    const auto end = std::make_shared<LoadEnd>();
    const Status begun = store_->load({name, name, in_place, false}, end);
    return begun ? end->wait() : LoadWaiter::Loaded(begun.error());
  }
  AttachmentSet attached(const std::string& name, float scale = 1) const {
    AttachmentSet set;
    for (const auto& module : store_->registry().get()->modules) {
      if (module->name == name) set.attachments.push_back({module, scale, 0});
    }
    EXPECT_EQ(set.attachments.size(), 1U) << name;
    return set;
  }

  static GenerationRequest ask_for(const std::string& prompt, std::int32_t max_tokens) {
    static std::atomic<RequestId> next_id{1};
    GenerationRequest request;
    request.id = next_id++;
    request.prompt = model_->vocabulary().tokenize(prompt, {.add_special = false}).value();
    request.sampling.temperature = 0;
    request.sampling.n_logprobs = 1;
    request.stop.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    return request;
  }
  // A long answer that is certainly under way when this returns.
  struct Stream {
    std::shared_ptr<CollectingSink> sink;
    std::shared_ptr<std::atomic<int>> n_tokens;
    std::shared_ptr<std::atomic<bool>> ended;
  };
  Stream begin(const GenerationRequest& request, AttachmentSet attachments) {
    Stream stream{nullptr, std::make_shared<std::atomic<int>>(0),
                  std::make_shared<std::atomic<bool>>(false)};
    const auto count = [n = stream.n_tokens, ended = stream.ended](const Event& event) {
      if (std::holds_alternative<TokenOutput>(event)) ++*n;
      if (std::holds_alternative<Finished>(event)) *ended = true;
      return true;
    };
    stream.sink = rig_->submit(request, std::move(attachments), count);
    while (*stream.n_tokens < 3 && !*stream.ended) std::this_thread::yield();
    return stream;
  }
  bool becomes_empty() {
    for (int i = 0; i < 2000 && store_->resident_bytes() > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return store_->resident_bytes() == 0;
  }

  static Model* model_;
  format_test::TemporaryDirectory directory_;
  std::unique_ptr<ServingRig> rig_;
  std::unique_ptr<LoopTrial> trial_;
  std::unique_ptr<ModuleStore> store_;
};

Model* LoadingTest::model_ = nullptr;

TEST_F(LoadingTest, ReplacingUnderRunningStreams) {
  put("m", "step2");
  start();
  ASSERT_TRUE(load("m"));
  const GenerationRequest request = ask_for("135", 1500);
  const Answer old_alone = rig_->ask(request, attached("m"));
  std::vector<Stream> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(begin(ask_for("135", 1500), attached("m")));
  put("m", "back");
  const auto replaced = load("m", true);
  ASSERT_TRUE(replaced) << replaced.error().message;
  for (const Stream& stream : streams) ASSERT_FALSE(*stream.ended) << "nothing was replaced under";
  const Answer fresh = rig_->ask(request, attached("m"));
  for (const Stream& stream : streams) {
    const Answer answer = stream.sink->wait();
    EXPECT_TRUE(answer.same_as(old_alone)) << answer.text;
  }
  EXPECT_FALSE(fresh.same_as(old_alone));
  EXPECT_TRUE(fresh.same_as(rig_->ask(request, attached("m"))));
  EXPECT_TRUE(fresh.text.starts_with("432")) << fresh.text;
}

// vLLM issue 42125: an adapter loaded again under its name was served with what the cache held of
// the old one.
TEST_F(LoadingTest, Vllm42125APromptAfterAnotherModuleAndAfterANewVersion) {
  put("a", "step2");
  put("b", "back");
  start();
  ASSERT_TRUE(load("a"));
  ASSERT_TRUE(load("b"));
  const GenerationRequest request = ask_for("hello 135", 20);
  const Answer a = rig_->ask(request, attached("a"));
  const Answer b = rig_->ask(request, attached("b"));
  EXPECT_FALSE(a.same_as(b));
  EXPECT_TRUE(a.same_as(rig_->ask(request, attached("a"))));
  EXPECT_TRUE(
      rig_->ask(request, attached("a", 0.5F)).same_as(rig_->ask(request, attached("a", 0.5F))));
  put("a", "back");
  ASSERT_TRUE(load("a", true));
  EXPECT_TRUE(b.same_as(rig_->ask(request, attached("a")))) << "same name, new content";
  put("a", "step2");
  ASSERT_TRUE(load("a", true));
  EXPECT_TRUE(a.same_as(rig_->ask(request, attached("a"))));
}

TEST_F(LoadingTest, OneContentUnderTwoNamesActsTwice) {
  put("a", "upper");
  put("b", "upper");
  start();
  ASSERT_TRUE(load("a"));
  ASSERT_TRUE(load("b"));
  AttachmentSet both = attached("a", 0.4F);
  both.attachments.push_back(attached("b", 0.4F).attachments.front());
  EXPECT_EQ(rig_->ask(ask_for("d", 4), attached("a", 0.4F)).text, "efgh");
  const Answer twice = rig_->ask(ask_for("d", 4), both);
  EXPECT_EQ(twice.text, "EFGH");
  GenerationRequest cold = ask_for("d", 4);
  cold.prefix_cache.may_read = false;
  const Stream beside = begin(ask_for("5", 300), attached("b", 0.4F));
  EXPECT_TRUE(rig_->ask(cold, both).same_as(twice));
  EXPECT_EQ(beside.sink->wait().end, Answer::End::kLength);
}

TEST_F(LoadingTest, UnloadingReturnsMemoryWhileOtherStreamsGoOn) {
  put("m", "step2");
  start();
  ASSERT_TRUE(load("m"));
  const Stream base = begin(ask_for("5", 3500), {});
  const Stream with_module = begin(ask_for("5", 60), attached("m"));
  ASSERT_TRUE(store_->unload("m"));
  EXPECT_EQ(with_module.sink->wait().text.substr(0, 6), "791357");
  const bool empty = becomes_empty();
  EXPECT_FALSE(*base.ended) << "the stream should outlast the module";
  EXPECT_TRUE(empty) << "the engine keeps an unloaded module";
  EXPECT_EQ(base.sink->wait().end, Answer::End::kLength);
}

TEST_F(LoadingTest, AModuleThatLongStreamsDoNotUseGoesAtOnce) {
  put("m", "step2");
  start();
  ASSERT_TRUE(load("m"));
  EXPECT_EQ(rig_->ask(ask_for("5", 4), attached("m")).text, "7913");
  const Stream base = begin(ask_for("5", 3500), {});
  rig_->ask(ask_for("5", 2), attached("m"));  // the engine knows it again
  ASSERT_TRUE(store_->unload("m"));
  const bool empty = becomes_empty();
  EXPECT_FALSE(*base.ended);
  EXPECT_TRUE(empty) << "no request has ended since";
  rig_->loop().cancel(1);
}

TEST_F(LoadingTest, LoadsChangeNoAnswerAndFailNone) {
  const std::vector<std::string> contents = {"step2", "back", "upper"};
  for (int i = 0; i < 3; ++i) put("m" + std::to_string(i), contents[static_cast<std::size_t>(i)]);
  start();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(load("m" + std::to_string(i)));
  std::atomic<bool> done{false};
  std::atomic<int> n_loads{0};
  std::jthread loader([&] {
    for (int i = 0; !done; ++i) {
      const std::string name = "m" + std::to_string(i % 3);
      put(name, contents[static_cast<std::size_t>((i / 3 + i) % 3)]);
      if (load(name, true)) ++n_loads;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  struct Asked {
    GenerationRequest request;
    AttachmentSet attachments;
    std::shared_ptr<CollectingSink> sink;
  };
  std::vector<Asked> all;
  for (int i = 0; i < 120; ++i) {
    Asked asked{ask_for("abc" + std::to_string(i * 7), 40), {}, nullptr};
    if (i % 4 != 3)
      asked.attachments = attached("m" + std::to_string(i % 3), i % 2 == 0 ? 1 : 0.5F);
    asked.sink = rig_->submit(asked.request, asked.attachments);
    all.push_back(asked);
    if (i % 8 == 7) asked.sink->wait();
  }
  std::vector<Answer> answers;
  for (const Asked& asked : all) answers.push_back(asked.sink->wait());
  done = true;
  loader.join();
  EXPECT_GT(n_loads, 3);
  ServingRig alone(*model_, small());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(answers[i].end, Answer::End::kLength) << answers[i].error.message;
    EXPECT_TRUE(answers[i].same_as(alone.ask(all[i].request, all[i].attachments))) << i;
  }
}

std::int64_t resident_pages() {
  std::int64_t n_pages = 0;
  std::int64_t n_resident = 0;
  std::ifstream("/proc/self/statm") >> n_pages >> n_resident;
  return n_resident;
}

TEST_F(LoadingTest, AThousandCyclesLeaveMemoryFlat) {
  put("m", "step2");
  start();
  const Answer base = rig_->ask(ask_for("135", 20), {});
  std::int64_t n_pages = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(load("m"));
    ASSERT_EQ(rig_->ask(ask_for("5", 2), attached("m")).text, "79");
    ASSERT_TRUE(store_->unload("m"));
    if (i == 99) n_pages = resident_pages();
  }
  EXPECT_TRUE(becomes_empty());
  const std::int64_t n_more = resident_pages() - n_pages;
  if (!kSanitized) {
    EXPECT_LT(n_more * sysconf(_SC_PAGESIZE), std::int64_t{2} << 20) << "after 900 more cycles";
  }
  EXPECT_TRUE(base.same_as(rig_->ask(ask_for("135", 20), {})));
}

TEST_F(LoadingTest, ATrialIsNoRequest) {
  put("m", "step2");
  start();
  const auto before = rig_->loop().counters();
  ASSERT_TRUE(load("m"));
  const auto after = rig_->loop().counters();
  EXPECT_GT(after.n_steps, before.n_steps) << "it was tried";
  EXPECT_EQ(after.n_submitted, before.n_submitted);
  EXPECT_EQ(after.n_finished, before.n_finished);
  EXPECT_EQ(after.n_waiting, 0);
  rig_->stop();
  rig_->engine().check_invariants();
  EXPECT_EQ(rig_->engine().cells().n_free(), 8192);
}

TEST_F(LoadingTest, AModuleThatBreaksTheComputationIsRefused) {
  start();
  const auto wild = make_random_module(model_->base(), {.strength = 60000});
  const Stream stream = begin(ask_for("5", 300), {});
  const Status refused = trial_->try_out(wild);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("a first step with it failed"), std::string::npos);
  EXPECT_EQ(stream.sink->wait().end, Answer::End::kLength) << "the stream beside it goes on";
  BaseModel other = model_->base();
  for (auto& [name, tensor] : other.tensors) tensor.ne[0] *= 2;
  const Status misfit = trial_->try_out(make_random_module(other, {.projections = {"attn_q"}}));
  ASSERT_FALSE(misfit);
  EXPECT_NE(misfit.error().message.find("attn_q"), std::string::npos);
  EXPECT_TRUE(rig_->loop().counters().healthy);
}

TEST_F(LoadingTest, AFullEngineDoesNotHoldUpALoadForEver) {
  put("m", "step2");
  RigOptions options = small();
  options.engine.max_seqs = 1;
  start(options, {.max_wait = std::chrono::milliseconds(30)});
  const GenerationRequest request = ask_for("5", 3500);
  const Stream stream = begin(request, {});
  const auto loaded = load("m");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_FALSE(*stream.ended);
  rig_->loop().cancel(request.id);
  EXPECT_EQ(rig_->ask(ask_for("5", 2), attached("m")).text, "79");
}

}  // namespace
}  // namespace graft
