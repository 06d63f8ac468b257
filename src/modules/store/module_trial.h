// ModuleTrial: the running engine's word on a module before anyone may ask for it: whether its
// sites take it and whether a first step with it works. Implemented above this folder.
#pragma once

#include <memory>

#include "base/result.h"
#include "modules/module_version.h"

namespace graft {

class ModuleTrial {
 public:
  virtual ~ModuleTrial() = default;
  // Called on a loader thread; takes as long as the engine needs. Other requests go on meanwhile.
  virtual Status try_out(const std::shared_ptr<const ModuleVersion>& version) = 0;
};

}  // namespace graft
