// LiveRegistry: the names that exist now, and the one place that changes them. Every change makes a
// new RegistrySnapshot; whoever holds an older one, or an attachment out of it, keeps what it has.
//
// Invariants: names are unique and never the base's; an id belongs to one name from add() to
// remove() and is never given again; the limits hold after every change, which happens whole or
// not at all. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/snapshot.h"
#include "modules/store/registry_snapshot.h"

namespace graft {

// 0 = no limit.
struct ModuleLimits {
  std::int32_t max_modules = 0;
  std::int64_t max_rank = 0;
  std::uint64_t max_bytes =
      0;  // of all resident factors, those that only running requests hold too
};

struct DefaultScale {
  std::int64_t id = 0;
  float scale = 0.0F;
};

class LiveRegistry {
 public:
  // Requires: a base name.
  LiveRegistry(std::vector<std::string> base_names, const ModuleLimits& limits);

  const Snapshot<RegistrySnapshot>& snapshot() const { return snapshot_; }
  const ModuleLimits& limits() const { return limits_; }

  // Null when there is no module of that name.
  std::shared_ptr<const ModuleVersion> find(const std::string& name) const;
  // Whether `name` could be loaded. Errors: kInvalidArgument for what is no name, the base's name,
  // and the name of a module unless it is to be replaced.
  Status check_name(const std::string& name, bool replace) const;

  // Announces `version`; a module of that name is replaced, keeping its id, if `replace` says so.
  // Returns the version as registered. Errors: those of check_name(), and limits.
  Result<std::shared_ptr<const ModuleVersion>> add(const ModuleVersion& version, bool replace)
      GRAFT_EXCLUDES(mutex_);
  // New requests do not find it any more. Errors: kNotFound.
  Status remove(const std::string& name) GRAFT_EXCLUDES(mutex_);
  // What shapes requests that name no module; ids that are left out do not act. Errors: kNotFound.
  Status set_default_scales(std::span<const DefaultScale> scales) GRAFT_EXCLUDES(mutex_);

  // A resident copy of that content, registered or still in use; null when there is none.
  std::shared_ptr<const ResidentAdapter> find_resident(const std::string& digest)
      GRAFT_EXCLUDES(mutex_);
  // Bytes of all resident factors, each copy once.
  std::uint64_t resident_bytes() GRAFT_EXCLUDES(mutex_);

 private:
  using Versions = std::vector<std::shared_ptr<const ModuleVersion>>;

  Status check_limits(const Versions& next, const std::string& name) GRAFT_REQUIRES(mutex_);
  void publish(Versions next) GRAFT_REQUIRES(mutex_);
  void retire(const std::shared_ptr<const ModuleVersion>& version) GRAFT_REQUIRES(mutex_);
  std::uint64_t bytes_with(const Versions& modules) GRAFT_REQUIRES(mutex_);

  const ModuleLimits limits_;
  mutable Mutex mutex_;  // guards changes; readers go through the snapshot
  Snapshot<RegistrySnapshot> snapshot_;
  std::int64_t next_id_ GRAFT_GUARDED_BY(mutex_) = 0;
  std::vector<DefaultScale> default_scales_ GRAFT_GUARDED_BY(mutex_);
  // Unloaded, but perhaps still held by requests.
  std::vector<std::weak_ptr<const ResidentAdapter>> retired_ GRAFT_GUARDED_BY(mutex_);
};

}  // namespace graft
