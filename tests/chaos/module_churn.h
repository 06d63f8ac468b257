// ModuleChurn: a thread that loads modules, replaces them, unloads them and tries to load broken
// files, up to three at once, and checks after each that the registry says what became of it. It is
// the only one that changes the store. start() and stop() belong to one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "chaos/module_contents.h"
#include "modules/store/module_store.h"
#include "support/load_end.h"

namespace graft {

struct ChurnOptions {
  std::vector<std::string> names;  // at least three
  std::uint32_t seed = 1;
  std::chrono::microseconds max_pause{2000};  // between two rounds of changes
};

struct ChurnCounts {
  std::int64_t n_loaded = 0;
  std::int64_t n_replaced = 0;
  std::int64_t n_unloaded = 0;
  std::int64_t n_broken = 0;   // files that were not accepted
  std::int64_t n_tried = 0;    // of these, what the engine found out
  std::int64_t n_refused = 0;  // the name was taken, or there was none to unload
};

class ModuleChurn {
 public:
  // Store and contents outlive it.
  ModuleChurn(ModuleStore& store, const ModuleContents& contents, ChurnOptions options);

  // Loads every name once before it returns.
  void start();
  // Then no name is left.
  ChurnCounts stop();

 private:
  struct Change {
    std::string name;
    std::shared_ptr<const ModuleVersion> before;  // under that name; null = none
    std::shared_ptr<const ModuleVersion> wanted;  // null: the file is broken
    std::shared_ptr<LoadEnd> end;
  };

  std::size_t below(std::size_t n) { return random_() % n; }
  std::shared_ptr<const ModuleVersion> registered(const std::string& name) const;
  std::string copy_to_own_path(const std::string& path, const std::string& name) const;
  void run();
  void change_some();
  void begin(const std::string& name, std::vector<Change>& under_way);
  void begin_load(const std::string& name, bool is_broken, std::vector<Change>& under_way);
  void finish(const Change& change);
  void unload(const std::string& name);

  ModuleStore& store_;
  const ModuleContents& contents_;
  const ChurnOptions options_;
  std::mt19937 random_;
  ChurnCounts counts_;
  std::atomic<bool> stopping_{false};
  std::jthread thread_;
};

}  // namespace graft
