#include "modules/store/live_registry.h"

#include <algorithm>
#include <set>

#include "modules/store/load_module.h"

namespace graft {
namespace {

using Versions = std::vector<std::shared_ptr<const ModuleVersion>>;

Versions::const_iterator find_name(const Versions& modules, const std::string& name) {
  return std::find_if(modules.begin(), modules.end(),
                      [&name](const auto& module) { return module->name == name; });
}

std::shared_ptr<const RegistrySnapshot> empty_registry(std::vector<std::string> base_names) {
  auto registry = std::make_shared<RegistrySnapshot>();
  registry->base_names = std::move(base_names);
  return registry;
}

std::string mebibytes(std::uint64_t bytes) {
  const std::uint64_t hundredths = (bytes * 100 + (1 << 19)) >> 20;
  const std::string digits = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + "." + (digits.size() < 2 ? "0" : "") + digits + " MiB";
}

}  // namespace

LiveRegistry::LiveRegistry(std::vector<std::string> base_names, const ModuleLimits& limits)
    : limits_(limits), snapshot_(empty_registry(std::move(base_names))) {}

std::shared_ptr<const ModuleVersion> LiveRegistry::find(const std::string& name) const {
  const auto registry = snapshot_.get();
  const auto found = find_name(registry->modules, name);
  return found == registry->modules.end() ? nullptr : *found;
}

Status LiveRegistry::check_name(const std::string& name, bool replace) const {
  GRAFT_RETURN_IF_ERROR(check_module_name(name));
  const auto registry = snapshot_.get();
  for (const std::string& base : registry->base_names) {
    if (base == name) return invalid_argument("'" + name + "': the base answers to that name");
  }
  if (replace || find_name(registry->modules, name) == registry->modules.end()) return {};
  // Operators look for these words.
  return invalid_argument("The lora adapter '" + name +
                          "' has already been loaded. If you want to load the adapter in place, "
                          "set 'load_inplace' to True.");
}

Result<std::shared_ptr<const ModuleVersion>> LiveRegistry::add(const ModuleVersion& version,
                                                               bool replace) {
  std::shared_ptr<const ModuleVersion> replaced;  // destroyed after the lock is gone
  MutexLock lock(mutex_);
  GRAFT_RETURN_IF_ERROR(check_name(version.name, replace));
  Versions next = snapshot_.get()->modules;
  const auto place = next.begin() + (find_name(next, version.name) - next.cbegin());
  const bool is_new = place == next.end();
  auto registered = std::make_shared<ModuleVersion>(version);
  registered->id = is_new ? next_id_ : (*place)->id;
  if (is_new) {
    next.push_back(registered);
  } else {
    replaced = std::exchange(*place, registered);
  }
  GRAFT_RETURN_IF_ERROR(check_limits(next, version.name));
  if (is_new) ++next_id_;
  if (replaced != nullptr) retire(replaced);
  publish(std::move(next));
  return std::shared_ptr<const ModuleVersion>(std::move(registered));
}

Status LiveRegistry::remove(const std::string& name) {
  std::shared_ptr<const ModuleVersion> removed;  // destroyed after the lock is gone
  MutexLock lock(mutex_);
  Versions next = snapshot_.get()->modules;
  const auto found = find_name(next, name);
  if (found == next.end()) return not_found("The lora adapter '" + name + "' cannot be found.");
  removed = *found;
  next.erase(found);
  std::erase_if(default_scales_, [&](const DefaultScale& one) { return one.id == removed->id; });
  retire(removed);
  publish(std::move(next));
  return {};
}

Status LiveRegistry::set_default_scales(std::span<const DefaultScale> scales) {
  MutexLock lock(mutex_);
  Versions modules = snapshot_.get()->modules;
  for (const DefaultScale& one : scales) {
    const bool known = std::any_of(modules.begin(), modules.end(),
                                   [&one](const auto& module) { return module->id == one.id; });
    if (!known) return not_found("There is no module with id " + std::to_string(one.id) + ".");
  }
  default_scales_.assign(scales.begin(), scales.end());
  publish(std::move(modules));
  return {};
}

Status LiveRegistry::check_limits(const Versions& next, const std::string& name) {
  const auto n_modules = static_cast<std::int64_t>(next.size());
  if (limits_.max_modules > 0 && n_modules > limits_.max_modules) {
    return invalid_argument("'" + name + "' would be module number " + std::to_string(n_modules) +
                            "; the limit is " + std::to_string(limits_.max_modules) +
                            " (--max-modules), and " + std::to_string(n_modules - 1) +
                            " are loaded");
  }
  if (limits_.max_bytes == 0) return {};
  const std::uint64_t bytes = bytes_with(next);
  if (bytes <= limits_.max_bytes) return {};
  return invalid_argument("with '" + name + "' modules would take " + mebibytes(bytes) +
                          "; the limit is " + mebibytes(limits_.max_bytes) +
                          " (--module-memory), and " +
                          mebibytes(bytes_with(snapshot_.get()->modules)) + " are in use");
}

void LiveRegistry::publish(Versions next) {
  auto registry = std::make_shared<RegistrySnapshot>();
  registry->base_names = snapshot_.get()->base_names;
  for (const auto& module : next) {
    for (const DefaultScale& one : default_scales_) {
      if (one.id != module->id || one.scale == 0.0F) continue;
      registry->default_attachments.attachments.push_back({module, one.scale});
    }
  }
  registry->modules = std::move(next);
  snapshot_.set(std::move(registry));
}

void LiveRegistry::retire(const std::shared_ptr<const ModuleVersion>& version) {
  std::erase_if(retired_, [](const auto& resident) { return resident.expired(); });
  retired_.push_back(version->resident);
}

std::shared_ptr<const ResidentAdapter> LiveRegistry::find_resident(const std::string& digest) {
  const auto registry = snapshot_.get();
  for (const auto& module : registry->modules) {
    if (module->digest() == digest) return module->resident;
  }
  MutexLock lock(mutex_);
  for (const auto& retired : retired_) {
    auto resident = retired.lock();
    if (resident != nullptr && resident->digest() == digest) return resident;
  }
  return nullptr;
}

std::uint64_t LiveRegistry::resident_bytes() {
  MutexLock lock(mutex_);
  return bytes_with(snapshot_.get()->modules);
}

// `modules` and what requests still hold of others.
std::uint64_t LiveRegistry::bytes_with(const Versions& modules) {
  std::set<const ResidentAdapter*> seen;
  std::uint64_t bytes = 0;
  for (const auto& module : modules) {
    if (seen.insert(module->resident.get()).second) bytes += module->resident->arena_bytes();
  }
  for (const auto& retired : retired_) {
    const auto resident = retired.lock();
    if (resident == nullptr || !seen.insert(resident.get()).second) continue;
    bytes += resident->arena_bytes();
  }
  return bytes;
}

}  // namespace graft
