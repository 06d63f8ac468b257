#include "modules/store/module_store.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/queue.h"
#include "modules/formats/format_test_support.h"

namespace graft {
namespace {

using format_test::make_base;
using format_test::SafetensorsWriter;
using format_test::TemporaryDirectory;
using Loaded = LoadWaiter::Loaded;

// Tries modules as told: at once, or when the test lets it; refuses some paths.
class FakeTrial : public ModuleTrial {
 public:
  Status try_out(const std::shared_ptr<const ModuleVersion>& version) override {
    ++n_tries;
    MutexLock lock(mutex_);
    while (held_) changed_.wait(mutex_);
    if (version->path == refused) return internal_error("the step failed");
    return {};
  }
  void hold(bool held) {
    MutexLock lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

  std::atomic<int> n_tries{0};
  std::string refused;

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool held_ GRAFT_GUARDED_BY(mutex_) = false;
};

class QueueWaiter : public LoadWaiter {
 public:
  void on_loaded(const Loaded& loaded) override { EXPECT_TRUE(heard_.push(loaded)); }
  Loaded wait() {
    auto loaded = heard_.pop_for(std::chrono::seconds(30));
    EXPECT_TRUE(loaded) << "nothing heard";
    return loaded ? *loaded : Loaded(internal_error("nothing heard"));
  }
  bool heard() const { return heard_.size() > 0; }

 private:
  Queue<Loaded> heard_{2};
};

class ModuleStoreTest : public testing::Test {
 protected:
  void SetUp() override { options_.root = directory_.path(); }

  ModuleStore& store() {
    if (store_ == nullptr) {
      options_.base_names = {"tiny", "base"};
      auto made = ModuleStore::create(base_, trial_, options_, {});
      if (!made) ADD_FAILURE() << made.error().message;
      store_ = std::move(*made);
    }
    return *store_;
  }
  // Different ranks are different contents.
  void write_module(const std::string& path, std::int64_t rank = 2) const {
    directory_.write(path + "/adapter_config.json",
                     R"({"peft_type":"LORA","lora_alpha":4,"r":)" + std::to_string(rank) + "}");
    directory_.write(
        path + "/adapter_model.safetensors",
        SafetensorsWriter().add_lora("model.layers.0.mlp.up_proj", rank, 16, 24).finish());
  }
  // Of calls that are accepted.
  std::shared_ptr<QueueWaiter> start(LoadCall call) {
    auto waiter = std::make_shared<QueueWaiter>();
    const Status status = store().load(std::move(call), waiter);
    if (!status) waiter->on_loaded(status.error());
    return waiter;
  }
  Loaded load(const std::string& name, const std::string& path, bool in_place = false) {
    return start({name, path, in_place, false})->wait();
  }
  std::string names() {
    std::string text;
    for (const auto& module : store().registry().get()->modules) {
      text += module->name + "=" + std::to_string(module->id) + " ";
    }
    return text;
  }
  // A loader lets go of a result just after its waiter has it.
  void expect_empty() {
    for (int i = 0; i < 10'000 && store().resident_bytes() > 0; ++i) std::this_thread::yield();
    EXPECT_EQ(store().resident_bytes(), 0U);
  }
  void wait_for_tries(int n) const {
    while (trial_.n_tries < n) std::this_thread::yield();
  }

  TemporaryDirectory directory_;
  BaseModel base_ = make_base({});
  FakeTrial trial_;
  ModuleStoreOptions options_;
  std::unique_ptr<ModuleStore> store_;
};

TEST_F(ModuleStoreTest, LoadsAnnouncesAndUnloads) {
  write_module("a");
  write_module("team/b", 3);
  const Loaded a = load("a", "a");
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_EQ((*a)->name, "a");
  EXPECT_EQ((*a)->path, "a");
  EXPECT_EQ((*a)->id, 0);
  ASSERT_TRUE(load("team/b", directory_.path() + "/team/b"));
  EXPECT_EQ(names(), "a=0 team/b=1 ");
  EXPECT_TRUE(store().unload("a"));
  EXPECT_EQ(names(), "team/b=1 ");
  EXPECT_EQ(store().unload("a").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(load("a", "a"));
  EXPECT_EQ(names(), "team/b=1 a=2 ") << "an id is never given to another module";
}

TEST_F(ModuleStoreTest, ReplacingKeepsTheIdAndRunningRequestsTheirVersion) {
  write_module("a", 2);
  write_module("other", 3);
  ASSERT_TRUE(load("a", "a"));
  ASSERT_TRUE(load("other", "other"));
  const std::shared_ptr<const ModuleVersion> held = store().registry().get()->modules[0];
  const Loaded refused = load("a", "a");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("has already been loaded"), std::string::npos);
  write_module("a", 5);
  const Loaded replaced = load("a", "a", true);
  ASSERT_TRUE(replaced) << replaced.error().message;
  EXPECT_EQ(names(), "a=0 other=1 ");
  EXPECT_NE((*replaced)->digest(), held->digest());
  EXPECT_EQ(held->resident->max_rank(), 2);
  EXPECT_EQ(store().registry().get()->modules[0]->resident->max_rank(), 5);
  EXPECT_TRUE(load("fresh", "a", true)) << "in place of nothing";
}

TEST_F(ModuleStoreTest, MemoryReturnsWithTheLastHolder) {
  write_module("a", 8);
  EXPECT_EQ(store().resident_bytes(), 0U);
  Loaded a = load("a", "a");
  ASSERT_TRUE(a);
  const std::uint64_t bytes = (*a)->resident->arena_bytes();
  EXPECT_EQ(store().resident_bytes(), bytes);
  const std::weak_ptr<const ResidentAdapter> watched = (*a)->resident;
  AttachmentSet lease;
  lease.attachments.push_back({*a, 1.0F, 0});
  a = internal_error("let go");
  ASSERT_TRUE(store().unload("a"));
  EXPECT_EQ(store().resident_bytes(), bytes) << "a request still holds it";
  lease = {};
  expect_empty();
  EXPECT_TRUE(watched.expired());
}

TEST_F(ModuleStoreTest, ThousandCyclesLeaveNothing) {
  write_module("a", 4);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(load("a", "a"));
    ASSERT_TRUE(store().unload("a"));
  }
  EXPECT_EQ(names(), "");
  expect_empty();
  EXPECT_EQ(store().counts().n_loads, 1000);
}

TEST_F(ModuleStoreTest, ConcurrentLoadsOfOnePathAreOne) {
  write_module("a");
  trial_.hold(true);
  std::vector<std::shared_ptr<QueueWaiter>> waiters;
  for (int i = 0; i < 8; ++i) waiters.push_back(start({"a", "a", false, true}));
  waiters.push_back(start({"second", "./a", false, false}));
  wait_for_tries(1);
  waiters.push_back(start({"third", directory_.path() + "/a", false, false}));
  EXPECT_EQ(names(), "") << "nobody sees a module that is being tried";
  trial_.hold(false);
  for (const auto& waiter : waiters) EXPECT_TRUE(waiter->wait());
  EXPECT_EQ(store().counts().n_loads, 1);
  EXPECT_EQ(store().counts().n_joined, 9);
  EXPECT_EQ(trial_.n_tries, 1);
  EXPECT_EQ(names(), "a=0 second=1 third=2 ");
  const auto registry = store().registry().get();
  EXPECT_EQ(registry->modules[0]->resident, registry->modules[2]->resident);
  EXPECT_EQ(store().resident_bytes(), registry->modules[0]->resident->arena_bytes());
}

TEST_F(ModuleStoreTest, TwoPathsLoadAtOnceAndAThirdWaits) {
  for (const char* name : {"a", "b", "c"}) write_module(name, 2 + name[0] - 'a');
  trial_.hold(true);
  std::vector<std::shared_ptr<QueueWaiter>> waiters;
  for (const char* name : {"a", "b", "c"}) waiters.push_back(start({name, name, false, false}));
  wait_for_tries(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(trial_.n_tries, 2);
  trial_.hold(false);
  for (const auto& waiter : waiters) EXPECT_TRUE(waiter->wait());
}

TEST_F(ModuleStoreTest, AChangedFileIsAnotherLoad) {
  write_module("a", 2);
  trial_.hold(true);
  const auto first = start({"a", "a", true, false});
  wait_for_tries(1);
  write_module("a", 7);
  const auto second = start({"a", "a", true, false});
  trial_.hold(false);
  ASSERT_TRUE(first->wait());
  const Loaded newest = second->wait();
  ASSERT_TRUE(newest) << newest.error().message;
  EXPECT_EQ((*newest)->resident->max_rank(), 7);
  EXPECT_EQ(store().counts().n_loads, 2);
}

TEST_F(ModuleStoreTest, AFailedLoadLeavesEverythingAndIsRemembered) {
  write_module("good", 2);
  ASSERT_TRUE(load("good", "good"));
  directory_.write("bad/adapter_config.json", "{}");
  directory_.write("bad/adapter_model.safetensors", "junk");
  const auto before = store().registry().get();
  for (int i = 0; i < 5; ++i) {
    const Loaded bad = load(i < 3 ? "bad" : "other", "bad", i == 2);
    ASSERT_FALSE(bad);
    EXPECT_NE(bad.error().message.find(i < 3 ? "'bad'" : "'other'"), std::string::npos);
  }
  EXPECT_EQ(store().registry().get(), before);
  EXPECT_EQ(store().counts().n_loads, 2) << "the failure is remembered";
  EXPECT_EQ(store().counts().n_failed, 1);
  const Loaded broken = load("good", "bad", true);
  EXPECT_FALSE(broken);
  EXPECT_EQ(store().registry().get()->modules[0]->resident->max_rank(), 2);
  write_module("bad", 2);
  EXPECT_TRUE(load("bad", "bad")) << "mended files are tried at once";
}

TEST_F(ModuleStoreTest, FailuresAreForgotten) {
  options_.failure_memory = std::chrono::milliseconds(0);
  directory_.write("bad.gguf", "GGUF and nothing more");
  EXPECT_FALSE(load("bad", "bad.gguf"));
  EXPECT_FALSE(load("bad", "bad.gguf"));
  EXPECT_EQ(store().counts().n_loads, 2);
}

TEST_F(ModuleStoreTest, WhatTheEngineRefusesIsNotAnnounced) {
  write_module("a");
  trial_.refused = "a";
  const Loaded refused = load("a", "a");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("the step failed"), std::string::npos);
  EXPECT_EQ(names(), "");
  EXPECT_EQ(store().resident_bytes(), 0U);
}

TEST_F(ModuleStoreTest, LimitsNameThemselvesAndTheCurrentValue) {
  options_.limits = {.max_modules = 2, .max_rank = 4, .max_bytes = 2 * 4096};
  for (const char* name : {"a", "b", "c"}) write_module(name, 2 + (name[0] - 'a'));
  write_module("wide", 5);
  EXPECT_NE(load("wide", "wide").error().message.find("rank is 5; the limit is 4"),
            std::string::npos);
  ASSERT_TRUE(load("a", "a"));
  ASSERT_TRUE(load("b", "b"));
  const std::string third = load("c", "c").error().message;
  EXPECT_NE(third.find("the limit is 2 (--max-modules), and 2 are loaded"), std::string::npos)
      << third;
  EXPECT_EQ(names(), "a=0 b=1 ");
  // A page each. What was replaced counts as long as a request holds it.
  const auto held = store().registry().get();
  ASSERT_TRUE(load("b", "c", true));
  ASSERT_TRUE(store().unload("b"));
  write_module("d", 1);
  const std::string full = load("d", "d").error().message;
  EXPECT_NE(full.find("(--module-memory), and 0.01 MiB are in use"), std::string::npos) << full;
  EXPECT_EQ(names(), "a=0 ");
}

TEST_F(ModuleStoreTest, TheBasesNamesAndBadNamesAreRefused) {
  write_module("a");
  for (const char* name : {"tiny", "base", "", "A", "..", "a/../b", "a,b"}) {
    const Loaded refused = load(name, "a", true);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(store().counts().n_loads, 0);
}

TEST_F(ModuleStoreTest, ForbiddenPathsAreLikeAbsentOnes) {
  write_module("a");
  std::filesystem::create_directory_symlink("a", directory_.path() + "/link");
  for (const char* path : {"nothing", "link", "../etc", "/etc", "", "a/.."}) {
    const Loaded refused = load("x", path);
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(refused.error().message, "'" + std::string(path) + "' does not exist");
  }
}

TEST_F(ModuleStoreTest, WithoutARootNothingLoads) {
  options_.root = "";
  options_.autoload = true;
  EXPECT_FALSE(store().can_load());
  EXPECT_FALSE(store().autoloads());
  EXPECT_EQ(load("a", "a").error().code, ErrorCode::kPermissionDenied);
  EXPECT_FALSE(store().find_missing("a"));
}

TEST_F(ModuleStoreTest, NamesAreLookedUpBeneathTheRoot) {
  options_.autoload = true;
  write_module("a");
  write_module("team/task", 3);
  directory_.write("flat.gguf", "GGUF");
  const std::string root = std::filesystem::canonical(directory_.path());
  EXPECT_EQ(*store().find_missing("a"), root + "/a");
  EXPECT_EQ(*store().find_missing("team/task"), root + "/team/task");
  EXPECT_EQ(*store().find_missing("flat"), root + "/flat.gguf");
  for (const char* name : {"team", "b", "..", "team/..", "../a", "A", "a/b/c", ""}) {
    EXPECT_EQ(store().find_missing(name).error().code, ErrorCode::kNotFound) << name;
  }
  // Wanted by name: found, loaded once, and no error for who comes later.
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(start({"team/task", root + "/team/task", false, true})->wait());
  }
  EXPECT_EQ(store().counts().n_loads, 1);
  options_.autoload = false;
  store_ = nullptr;
  EXPECT_FALSE(store().find_missing("a"));
}

TEST_F(ModuleStoreTest, DefaultScalesFollowTheModules) {
  options_.default_scales = true;
  write_module("a", 2);
  write_module("b", 3);
  ASSERT_TRUE(load("a", "a"));
  ASSERT_TRUE(load("b", "b"));
  const std::vector<DefaultScale> scales = {{1, 0.5F}, {0, 0.0F}};
  ASSERT_TRUE(store().set_default_scales(scales));
  auto acting = store().registry().get()->default_attachments.attachments;
  ASSERT_EQ(acting.size(), 1U);
  EXPECT_EQ(acting[0].module->name, "b");
  EXPECT_EQ(acting[0].scale, 0.5F);
  ASSERT_TRUE(load("b", "a", true));
  acting = store().registry().get()->default_attachments.attachments;
  ASSERT_EQ(acting.size(), 1U);
  EXPECT_EQ(acting[0].module->path, "a") << "the new version acts";
  EXPECT_FALSE(store().set_default_scales(std::vector<DefaultScale>{{7, 1.0F}}));
  EXPECT_EQ(store().registry().get()->default_attachments.attachments.size(), 1U);
  ASSERT_TRUE(store().unload("b"));
  EXPECT_TRUE(store().registry().get()->default_attachments.empty());
  options_.default_scales = false;
  store_ = nullptr;
  EXPECT_EQ(store().set_default_scales({}).error().code, ErrorCode::kPermissionDenied);
}

TEST_F(ModuleStoreTest, WhatWaitsAtTheEndHearsOfIt) {
  for (const char* name : {"a", "b", "c"}) write_module(name, 2 + (name[0] - 'a'));
  trial_.hold(true);
  std::vector<std::shared_ptr<QueueWaiter>> waiters;
  for (const char* name : {"a", "b", "c"}) waiters.push_back(start({name, name, false, false}));
  wait_for_tries(2);
  std::jthread release([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    trial_.hold(false);
  });
  store_ = nullptr;
  EXPECT_TRUE(waiters[0]->heard() && waiters[1]->heard());
  EXPECT_EQ(waiters[2]->wait().error().code, ErrorCode::kUnavailable);
}

TEST_F(ModuleStoreTest, InitialModulesObeyTheLimits) {
  write_module("a", 4);
  const auto version = load("a", "a").value();
  ModuleStoreOptions options = options_;
  options.limits.max_rank = 3;
  const auto refused = ModuleStore::create(base_, trial_, options, {version});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'a'"), std::string::npos);
  options.limits = {};
  options.base_names = {"a"};
  EXPECT_FALSE(ModuleStore::create(base_, trial_, options, {version}));
  options.base_names = {"base"};
  EXPECT_FALSE(ModuleStore::create(base_, trial_, options, {version, version}));
  options.root = "/nonexistent";
  EXPECT_FALSE(ModuleStore::create(base_, trial_, options, {}));
}

}  // namespace
}  // namespace graft
