// resolve(): turns the names in a request into the attachments that will shape its answer.
// A pure function of the snapshot. Strict: an unknown name is an error with the near names, never
// silently the base.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/request.h"
#include "modules/module_version.h"
#include "modules/store/registry_snapshot.h"

namespace graft {

constexpr float kMaxModuleScale = 100.0F;

struct Resolution {
  std::string model;          // the name to report: as asked for, or the base's first name
  AttachmentSet attachments;  // empty = the base alone
};

// `model` is a base name, a module name, `name@` with the first hex digits of the version's digest,
// or `base:name`; "" means the base. `choices` attach further modules and need a base in `model`.
// Without a module name and without choices the registry's default attachments act; a scale of 0
// leaves a module out. Errors: kNotFound for unknown names, kInvalidArgument for
// duplicates, contradictions and scales that are not finite or beyond kMaxModuleScale.
Result<Resolution> resolve(const RegistrySnapshot& registry, const std::string& model,
                           std::span<const ModuleChoice> choices);

// The name of the module that a reference of one of these forms names, registered or not; "" for a
// base name.
std::string_view module_name_in(const RegistrySnapshot& registry, std::string_view reference);

bool is_base_name(const RegistrySnapshot& registry, std::string_view name);

// The digest of a version's content, 64 hex digits.
inline const std::string& digest_of(const ModuleVersion& version) {
  return version.description->digest;
}

}  // namespace graft
