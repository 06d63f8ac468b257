#include "modules/store/module_store.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "base/log.h"
#include "modules/formats/read_adapter.h"
#include "modules/store/load_module.h"

namespace graft {
namespace {

constexpr std::size_t kMaxJobs = 64;  // under way and waiting

Error stopped() { return {ErrorCode::kUnavailable, "the server is shutting down", {}}; }

// On few processors a loader of equal rank would take half the machine from the engine.
void lower_priority() {
  if (setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19) != 0) {
    log_warning("a loader thread keeps its priority");
  }
}

// Whether asking again for the same files would end the same way.
bool is_lasting(const Error& error) {
  switch (error.code) {
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled:
    case ErrorCode::kResourceExhausted: return false;
    default: return true;
  }
}

Status check_rank(std::int64_t rank, std::int64_t max_rank) {
  if (max_rank == 0 || rank <= max_rank) return {};
  return invalid_argument("its rank is " + std::to_string(rank) + "; the limit is " +
                          std::to_string(max_rank) + " (--max-lora-rank)");
}

std::int64_t rank_of(const Adapter& adapter) {
  std::int64_t rank = 0;
  for (const LoraTerm& term : adapter.terms) rank = std::max(rank, term.rank);
  return rank;
}

}  // namespace

Result<std::unique_ptr<ModuleStore>> ModuleStore::create(
    const BaseModel& base, ModuleTrial& trial, ModuleStoreOptions options,
    const std::vector<std::shared_ptr<const ModuleVersion>>& initial) {
  std::optional<ConfinedFiles> files;
  if (!options.root.empty()) {
    GRAFT_ASSIGN_OR_RETURN(files, ConfinedFiles::open(options.root));
  }
  std::unique_ptr<ModuleStore> store(
      new ModuleStore(base, trial, std::move(options), std::move(files)));
  const std::int64_t max_rank = store->options_.limits.max_rank;
  for (const auto& version : initial) {
    if (Status rank = check_rank(version->resident->max_rank(), max_rank); !rank) {
      return about_module({version->name, version->path}, std::move(rank).error());
    }
    auto added = store->registry_.add(*version, false);
    if (!added) return about_module({version->name, version->path}, std::move(added).error());
  }
  return store;
}

ModuleStore::ModuleStore(const BaseModel& base, ModuleTrial& trial, ModuleStoreOptions options,
                         std::optional<ConfinedFiles> files)
    : base_(base),
      trial_(trial),
      options_(std::move(options)),
      files_(std::move(files)),
      registry_(options_.base_names, options_.limits),
      jobs_(kMaxJobs),
      failed_(options_.failure_memory) {
  const int n_loaders = files_.has_value() ? std::max(1, options_.n_loaders) : 0;
  for (int i = 0; i < n_loaders; ++i) loaders_.emplace_back([this] { run_loader(); });
}

ModuleStore::~ModuleStore() {
  stopping_ = true;
  jobs_.close();
}

Status ModuleStore::load(LoadCall call, const std::shared_ptr<LoadWaiter>& waiter) {
  if (!can_load()) {
    return Error{ErrorCode::kPermissionDenied,
                 "modules cannot be loaded: the server was started without --modules-dir",
                 {}};
  }
  GRAFT_RETURN_IF_ERROR(registry_.check_name(call.name, call.in_place || call.wanted));
  GRAFT_ASSIGN_OR_RETURN(std::string path, files_->relative(call.path));
  GRAFT_ASSIGN_OR_RETURN(std::string signature, files_->signature(path));
  const Job job{std::move(path), std::move(signature)};
  const std::string name = call.name;
  const bool wanted = call.wanted;
  GRAFT_ASSIGN_OR_RETURN(const ClaimResult result, claim(job, {std::move(call), waiter}));
  if (result == ClaimResult::kJoined) {
    ++n_joined_;
  } else if (result == ClaimResult::kRegistered && wanted) {
    waiter->on_loaded(registry_.find(name));
  } else if (const Status queued = jobs_.push(job); !queued) {
    fail(job, queued.error());
  }
  return {};
}

// A job's modules are announced before its claims go, so whoever finds no job here and no module
// in the registry is the first to want it.
Result<ModuleStore::ClaimResult> ModuleStore::claim(const Job& job, Claim claim) {
  MutexLock lock(mutex_);
  if (const auto found = claims_.find(job); found != claims_.end()) {
    found->second.push_back(std::move(claim));
    return ClaimResult::kJoined;
  }
  if (claim.call.wanted && registry_.find(claim.call.name) != nullptr) {
    return ClaimResult::kRegistered;
  }
  if (const Error* error = failed_.find(job.path, job.signature, FailedLoads::Clock::now())) {
    return about_module({claim.call.name, claim.call.path}, *error);
  }
  if (claims_.size() >= kMaxJobs) {
    return Error{ErrorCode::kResourceExhausted,
                 std::to_string(kMaxJobs) + " modules are being loaded; the queue is full",
                 {}};
  }
  claims_[job].push_back(std::move(claim));
  return ClaimResult::kNew;
}

std::vector<ModuleStore::Claim> ModuleStore::take_claims(const Job& job) {
  MutexLock lock(mutex_);
  const auto found = claims_.find(job);
  std::vector<Claim> claims = std::exchange(found->second, {});
  if (claims.empty()) claims_.erase(found);
  return claims;
}

void ModuleStore::fail(const Job& job, const Error& error) {
  for (auto claims = take_claims(job); !claims.empty(); claims = take_claims(job)) {
    for (const Claim& claim : claims) claim.waiter->on_loaded(error);
  }
}

void ModuleStore::run_loader() {
  if (options_.low_priority) lower_priority();
  while (const auto job = jobs_.pop()) run(*job);
}

// Claims that come while the job runs are answered by it as well. All hear of it when the job is
// forgotten, so that what they do next begins anew.
void ModuleStore::run(const Job& job) {
  if (stopping_) return fail(job, stopped());
  std::vector<std::pair<std::shared_ptr<LoadWaiter>, LoadWaiter::Loaded>> results;
  {
    const Prepared prepared = prepare(job);
    for (auto claims = take_claims(job); !claims.empty(); claims = take_claims(job)) {
      std::map<std::string, LoadWaiter::Loaded> announced;
      for (const Claim& claim : claims) {
        auto entry = announced.find(claim.call.name);
        if (entry == announced.end()) {
          entry = announced.emplace(claim.call.name, announce(claim.call, prepared)).first;
        }
        results.emplace_back(claim.waiter, entry->second);
      }
    }
  }
  for (const auto& [waiter, loaded] : results) waiter->on_loaded(loaded);
}

ModuleStore::Prepared ModuleStore::prepare(const Job& job) {
  ++n_loads_;
  Prepared prepared = internal_error("loading failed");
  try {
    prepared = read_and_try(job);
  } catch (const std::bad_alloc&) {
    prepared = Error{ErrorCode::kResourceExhausted, "there is no memory to load it", {}};
  } catch (const std::exception& error) {
    prepared = internal_error(std::string("loading failed: ") + error.what());
  }
  if (prepared) return prepared;
  ++n_failed_;
  if (is_lasting(prepared.error())) {
    MutexLock lock(mutex_);
    failed_.add(job.path, job.signature, prepared.error(), FailedLoads::Clock::now());
  }
  return prepared;
}

ModuleStore::Prepared ModuleStore::read_and_try(const Job& job) {
  const auto begin = std::chrono::steady_clock::now();
  GRAFT_ASSIGN_OR_RETURN(auto adapter, read_adapter(*files_, job.path, base_));
  GRAFT_ASSIGN_OR_RETURN(const std::string signature, files_->signature(job.path));
  if (signature != job.signature) {
    return Error{ErrorCode::kUnavailable, "its files changed while they were read; try again", {}};
  }
  GRAFT_RETURN_IF_ERROR(check_rank(rank_of(*adapter), options_.limits.max_rank));
  const ModuleSource source{job.path, job.path};
  // The same content is resident once, and has been tried.
  if (auto resident = registry_.find_resident(adapter->digest)) {
    return make_version(source, *adapter, std::move(resident), begin);
  }
  GRAFT_ASSIGN_OR_RETURN(auto resident, ResidentAdapter::pack(adapter, options_.precision));
  auto version = make_version(source, *adapter, std::move(resident), begin);
  adapter.reset();  // the resident copy is enough while the engine tries it
  GRAFT_RETURN_IF_ERROR(trial_.try_out(version));
  return version;
}

LoadWaiter::Loaded ModuleStore::announce(const LoadCall& call, const Prepared& prepared) {
  if (!prepared) return about_module({call.name, call.path}, prepared.error());
  ModuleVersion version = **prepared;
  version.name = call.name;
  version.path = call.path;
  auto added = registry_.add(version, call.in_place);
  // Whoever only wants it there is content with another's.
  if (!added && call.wanted) {
    if (auto there = registry_.find(call.name)) return there;
  }
  if (added) {
    log_info("module '" + call.name + "' loaded from '" + call.path + "', digest " +
             (*added)->digest().substr(0, 12));
  }
  return added;
}

Status ModuleStore::unload(const std::string& name) {
  GRAFT_RETURN_IF_ERROR(registry_.remove(name));
  log_info("module '" + name + "' unloaded");
  return {};
}

Status ModuleStore::set_default_scales(std::span<const DefaultScale> scales) {
  if (options_.default_scales) return registry_.set_default_scales(scales);
  return Error{ErrorCode::kPermissionDenied,
               "scales for all requests cannot be set: the server was started without "
               "--default-scales",
               {}};
}

Result<std::string> ModuleStore::find_missing(const std::string& name) const {
  const Error absent = not_found("there is no module named '" + name + "'");
  if (!autoloads() || !check_module_name(name)) return absent;
  // A directory of modules is a namespace; only one with a config of its own is a module.
  if (files_->kind(name + "/adapter_config.json") == FileSource::Kind::kFile) {
    return files_->root() + "/" + name;
  }
  if (files_->kind(name + ".gguf") == FileSource::Kind::kFile) {
    return files_->root() + "/" + name + ".gguf";
  }
  return absent;
}

LoadCounts ModuleStore::counts() const { return {n_loads_, n_failed_, n_joined_}; }

}  // namespace graft
