#include "chaos/module_churn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace graft {

namespace fs = std::filesystem;

ModuleChurn::ModuleChurn(ModuleStore& store, const ModuleContents& contents, ChurnOptions options)
    : store_(store), contents_(contents), options_(std::move(options)), random_(options_.seed) {}

void ModuleChurn::start() {
  for (const std::string& name : options_.names) {
    std::vector<Change> under_way;
    begin_load(name, false, under_way);
    while (under_way.empty()) begin_load(name, false, under_way);
    finish(under_way.front());
  }
  thread_ = std::jthread([this] { run(); });
}

ChurnCounts ModuleChurn::stop() {
  stopping_ = true;
  thread_.join();
  for (const std::string& name : options_.names) {
    if (registered(name) != nullptr) unload(name);
  }
  return counts_;
}

void ModuleChurn::run() {
  while (!stopping_) {
    change_some();
    const auto pause = static_cast<std::size_t>(options_.max_pause.count());
    std::this_thread::sleep_for(std::chrono::microseconds(below(pause + 1)));
  }
}

void ModuleChurn::change_some() {
  std::vector<std::string> names = options_.names;
  std::shuffle(names.begin(), names.end(), random_);
  names.resize(1 + below(3));
  std::vector<Change> under_way;
  for (const std::string& name : names) begin(name, under_way);
  for (const Change& change : under_way) finish(change);
}

void ModuleChurn::begin(const std::string& name, std::vector<Change>& under_way) {
  const std::size_t kind = below(10);
  if (kind == 0) return unload(name);
  begin_load(name, kind < 3, under_way);
}

void ModuleChurn::begin_load(const std::string& name, bool is_broken,
                             std::vector<Change>& under_way) {
  Change change{name, registered(name), nullptr, std::make_shared<LoadEnd>()};
  const auto& content = contents_.all()[below(contents_.all().size())];
  std::string path = content.path;
  if (is_broken) {
    path = contents_.broken()[below(contents_.broken().size())];
  } else {
    change.wanted = content.version;
    if (below(2) == 0) path = copy_to_own_path(path, name);
  }
  const bool in_place = is_broken || below(3) > 0;
  const Status begun = store_.load({name, path, in_place, false}, change.end);
  if (change.before != nullptr && !in_place) {
    EXPECT_FALSE(begun) << name << " is taken";
    ++counts_.n_refused;
    return;
  }
  EXPECT_TRUE(begun) << begun.error().message;
  if (begun) under_way.push_back(std::move(change));
}

void ModuleChurn::finish(const Change& change) {
  const LoadWaiter::Loaded loaded = change.end->wait();
  const auto now = registered(change.name);
  if (change.wanted == nullptr) {
    EXPECT_FALSE(loaded) << "a broken file was loaded as " << change.name;
    EXPECT_EQ(now, change.before) << "a load that fails changes nothing";
    ++counts_.n_broken;
    if (!loaded && loaded.error().message.find("a first step with it") != std::string::npos) {
      ++counts_.n_tried;
    }
    return;
  }
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(now, *loaded);
  EXPECT_EQ((*loaded)->digest(), change.wanted->digest());
  if (change.before != nullptr) {
    EXPECT_EQ(now->id, change.before->id) << "an id belongs to the name";
    ++counts_.n_replaced;
  } else {
    ++counts_.n_loaded;
  }
}

void ModuleChurn::unload(const std::string& name) {
  const bool is_there = registered(name) != nullptr;
  EXPECT_EQ(static_cast<bool>(store_.unload(name)), is_there) << name;
  EXPECT_EQ(registered(name), nullptr);
  ++(is_there ? counts_.n_unloaded : counts_.n_refused);
}

std::shared_ptr<const ModuleVersion> ModuleChurn::registered(const std::string& name) const {
  const auto registry = store_.registry().get();
  for (const auto& module : registry->modules) {
    if (module->name == name) return module;
  }
  return nullptr;
}

// New content where the old was read from, as an operator replaces it.
std::string ModuleChurn::copy_to_own_path(const std::string& path, const std::string& name) const {
  const fs::path from = fs::path(contents_.root()) / path;
  if (!fs::is_regular_file(from)) return path;
  const std::string own = name + "-own.gguf";
  const fs::path to = fs::path(contents_.root()) / own;
  const fs::path fresh = to.string() + ".new";
  fs::create_directories(to.parent_path());
  fs::copy_file(from, fresh, fs::copy_options::overwrite_existing);
  fs::rename(fresh, to);
  return own;
}

}  // namespace graft
