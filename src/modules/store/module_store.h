// ModuleStore: modules that come and go while requests run. A load reads the files beneath the
// modules directory, binds and packs them on a loader thread of low priority, has the engine try
// the result, and announces it in the registry; until then nobody sees any of it, and a load that
// fails leaves everything as it was.
//
// Loads of the same files share one job, whoever asks and however often; a failure is remembered
// for a short while. Running requests keep the versions they hold; memory returns with the last
// holder. Thread-safe; nothing here waits for a load or for the engine except the loader threads,
// which the store owns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/queue.h"
#include "base/result.h"
#include "modules/base_model.h"
#include "modules/store/confined_files.h"
#include "modules/store/failed_loads.h"
#include "modules/store/live_registry.h"
#include "modules/store/module_trial.h"

namespace graft {

struct ModuleStoreOptions {
  std::vector<std::string> base_names;  // at least one
  std::string root;                     // "" = no module is loaded while serving
  bool autoload = false;                // find_missing() looks beneath the root
  bool default_scales = false;          // set_default_scales() is allowed
  Precision precision = Precision::kFile;
  ModuleLimits limits = {};
  int n_loaders = 2;         // loads at once
  bool low_priority = true;  // loaders run when nobody else wants the processor
  std::chrono::milliseconds failure_memory{30000};
};

// Hears how a load ended, exactly once: on a loader thread, or from inside load() when the module
// was there already. Returns at once.
class LoadWaiter {
 public:
  using Loaded = Result<std::shared_ptr<const ModuleVersion>>;
  virtual ~LoadWaiter() = default;
  virtual void on_loaded(const Loaded& loaded) = 0;
};

struct LoadCall {
  std::string name;
  std::string path;       // as the client names it
  bool in_place = false;  // replaces a module of that name
  // The module is wanted by name, whoever loads it: it is no error when it is there already.
  bool wanted = false;
};

struct LoadCounts {
  std::int64_t n_loads = 0;   // jobs that read files
  std::int64_t n_failed = 0;  // of these
  std::int64_t n_joined = 0;  // calls that another one's job answered
};

class ModuleStore {
 public:
  // `initial` modules, tried already, are announced in their order. Errors: names, limits, a root
  // that is no directory. Base model and trial outlive the store.
  static Result<std::unique_ptr<ModuleStore>> create(
      const BaseModel& base, ModuleTrial& trial, ModuleStoreOptions options,
      const std::vector<std::shared_ptr<const ModuleVersion>>& initial);
  // Ends when the loads under way have; what waits fails with kUnavailable.
  ~ModuleStore();
  ModuleStore(const ModuleStore&) = delete;
  ModuleStore& operator=(const ModuleStore&) = delete;

  const Snapshot<RegistrySnapshot>& registry() const { return registry_.snapshot(); }
  bool can_load() const { return files_.has_value(); }
  bool autoloads() const { return files_.has_value() && options_.autoload; }
  bool has_default_scales() const { return options_.default_scales; }

  // After an error the waiter hears nothing. Errors: kPermissionDenied without a root, kNotFound
  // for whatever is not beneath it, a remembered failure, kResourceExhausted when too much waits.
  Status load(LoadCall call, const std::shared_ptr<LoadWaiter>& waiter) GRAFT_EXCLUDES(mutex_);
  // Errors: kNotFound.
  Status unload(const std::string& name);
  // Errors: kPermissionDenied unless options allow it; kNotFound for unknown ids.
  Status set_default_scales(std::span<const DefaultScale> scales);

  // The path beneath the root that an unknown name would be loaded from; kNotFound when there is
  // none or names are not looked up.
  Result<std::string> find_missing(const std::string& name) const;

  std::uint64_t resident_bytes() { return registry_.resident_bytes(); }
  LoadCounts counts() const;
  std::int32_t max_modules() const { return options_.limits.max_modules; }  // 0 = no limit

 private:
  struct Claim {
    LoadCall call;
    std::shared_ptr<LoadWaiter> waiter;
  };
  struct Job {
    std::string path;       // beneath the root
    std::string signature;  // of what lies there
    friend auto operator<=>(const Job&, const Job&) = default;
  };
  // A resident copy with its description, not yet under a name.
  using Prepared = Result<std::shared_ptr<const ModuleVersion>>;

  ModuleStore(const BaseModel& base, ModuleTrial& trial, ModuleStoreOptions options,
              std::optional<ConfinedFiles> files);

  enum class ClaimResult {
    kNew,         // the job is to be queued
    kJoined,      // another call has begun it
    kRegistered,  // the module that is wanted is there
  };
  Result<ClaimResult> claim(const Job& job, Claim claim) GRAFT_EXCLUDES(mutex_);
  // What waits for the job now; the job is forgotten when nothing does.
  std::vector<Claim> take_claims(const Job& job) GRAFT_EXCLUDES(mutex_);
  void fail(const Job& job, const Error& error);
  void run_loader();
  void run(const Job& job);
  Prepared prepare(const Job& job) GRAFT_EXCLUDES(mutex_);
  Prepared read_and_try(const Job& job);
  LoadWaiter::Loaded announce(const LoadCall& call, const Prepared& prepared);

  const BaseModel& base_;
  ModuleTrial& trial_;
  const ModuleStoreOptions options_;
  const std::optional<ConfinedFiles> files_;
  LiveRegistry registry_;

  Queue<Job> jobs_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> n_loads_{0};
  std::atomic<std::int64_t> n_failed_{0};
  std::atomic<std::int64_t> n_joined_{0};

  Mutex mutex_;
  std::map<Job, std::vector<Claim>> claims_ GRAFT_GUARDED_BY(mutex_);  // by job under way
  FailedLoads failed_ GRAFT_GUARDED_BY(mutex_);

  std::vector<std::jthread> loaders_;  // last: they use everything above
};

}  // namespace graft
