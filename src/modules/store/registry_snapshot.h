// RegistrySnapshot: which names exist at one moment, and which module version each stands for.
// Immutable once published through Snapshot<RegistrySnapshot>; any thread reads it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "modules/module_version.h"

namespace graft {

struct RegistrySnapshot {
  // Names of the base model; the first is the one reported. Never empty.
  std::vector<std::string> base_names;
  // In the order of registration, each under its own ModuleVersion::id.
  std::vector<std::shared_ptr<const ModuleVersion>> modules;
  // What shapes a request that names no module; empty unless an administrator has set it.
  AttachmentSet default_attachments;
};

}  // namespace graft
