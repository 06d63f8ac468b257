// KnownAdapters: the adapters that took part in steps. The grafter remembers them by address, so it
// must forget one before that is destroyed and another comes to live there. Hence each is held here
// until nobody else holds it, at the latest until no request runs.
// Belongs to the engine thread.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "modules/module_version.h"

namespace graft {

class KnownAdapters {
 public:
  using Forget = std::function<void(const ResidentAdapter*)>;

  explicit KnownAdapters(Forget forget) : forget_(std::move(forget)) {}

  // Call before `set` takes part in a step.
  void add(const AttachmentSet& set);
  // Forgets and lets go of the adapters that nobody else holds.
  void release_unused();
  // The same for all of them. Requires: no request runs.
  void release_all();

  std::size_t size() const { return known_.size(); }

 private:
  Forget forget_;
  std::unordered_map<const ResidentAdapter*, std::shared_ptr<const ResidentAdapter>> known_;
};

}  // namespace graft
