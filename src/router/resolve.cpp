#include "router/resolve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "router/near_names.h"

namespace graft {
namespace {

using ModulePointer = std::shared_ptr<const ModuleVersion>;

constexpr std::size_t kMinDigestPrefix = 4;

// Names appear in error messages: printable, and not longer than a line.
std::string quoted(std::string_view name) {
  constexpr std::size_t kMaxShown = 100;
  std::string shown = "'";
  for (const char c : name.substr(0, kMaxShown)) {
    shown.push_back(static_cast<unsigned char>(c) < 0x20 ? '?' : c);
  }
  return shown + (name.size() > kMaxShown ? "...'" : "'");
}

Error unknown_name(const RegistrySnapshot& registry, std::string_view name, bool bases_count,
                   std::string param) {
  std::vector<std::string> known;
  if (bases_count) known = registry.base_names;
  for (const ModulePointer& module : registry.modules) known.push_back(module->name);
  std::string message = "There is no " + std::string(bases_count ? "model" : "module") + " named " +
                        quoted(name) + ".";
  const std::vector<std::string> near = near_names(name, known);
  for (std::size_t i = 0; i < near.size(); ++i) {
    message += (i == 0 ? " Near names: " : ", ") + quoted(near[i]);
  }
  if (!near.empty()) message += ".";
  return {ErrorCode::kNotFound, std::move(message), std::move(param)};
}

ModulePointer find_exact(const RegistrySnapshot& registry, std::string_view name) {
  for (const ModulePointer& module : registry.modules) {
    if (module->name == name) return module;
  }
  return nullptr;
}

ModulePointer find_id(const RegistrySnapshot& registry, std::int64_t id) {
  for (const ModulePointer& module : registry.modules) {
    if (id >= 0 && module->id == id) return module;
  }
  return nullptr;
}

// Ids keep their meaning when other modules are unloaded, so there may be gaps.
Error unknown_id(const RegistrySnapshot& registry, std::int64_t id, std::string param) {
  constexpr std::size_t kMaxListed = 20;
  std::string message = "There is no module with id " + std::to_string(id) + "; ";
  if (registry.modules.empty()) message += "no module is loaded";
  for (std::size_t i = 0; i < std::min(registry.modules.size(), kMaxListed); ++i) {
    message += (i == 0 ? "there are: " : ", ") + std::to_string(registry.modules[i]->id);
  }
  if (registry.modules.size() > kMaxListed) message += ", ...";
  return {ErrorCode::kNotFound, message + ".", std::move(param)};
}

bool is_digest_prefix(std::string_view text) {
  return text.size() >= kMinDigestPrefix &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// `name` or `name@digest-prefix`; null when there is no such module or version.
ModulePointer find_module(const RegistrySnapshot& registry, std::string_view reference) {
  if (ModulePointer module = find_exact(registry, reference)) return module;
  const std::size_t at = reference.rfind('@');
  if (at == std::string_view::npos) return nullptr;
  const std::string_view prefix = reference.substr(at + 1);
  if (!is_digest_prefix(prefix)) return nullptr;
  ModulePointer module = find_exact(registry, reference.substr(0, at));
  return module != nullptr && digest_of(*module).starts_with(prefix) ? module : nullptr;
}

// The part behind `base:`, or the whole reference when it has no such prefix.
std::string_view without_base_prefix(const RegistrySnapshot& registry, std::string_view reference) {
  for (const std::string& base : registry.base_names) {
    if (reference.size() > base.size() && reference.starts_with(base) &&
        reference[base.size()] == ':') {
      return reference.substr(base.size() + 1);
    }
  }
  return reference;
}

Result<ModulePointer> find_choice(const RegistrySnapshot& registry, const ModuleChoice& choice,
                                  const std::string& param) {
  if (choice.index) {
    if (ModulePointer module = find_id(registry, *choice.index)) return module;
    return unknown_id(registry, *choice.index, param);
  }
  const std::string_view name = without_base_prefix(registry, choice.name);
  if (ModulePointer module = find_module(registry, name)) return module;
  return unknown_name(registry, choice.name, false, param);
}

Status check_scale(float scale, const std::string& param) {
  if (std::isfinite(scale) && std::fabs(scale) <= kMaxModuleScale) return {};
  return invalid_argument("A module's scale must be a number from -100 to 100.", param);
}

Result<AttachmentSet> attach_choices(const RegistrySnapshot& registry,
                                     std::span<const ModuleChoice> choices) {
  AttachmentSet set;
  std::vector<const ModuleVersion*> seen;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::string param = (choices[i].index ? "lora[" : "modules[") + std::to_string(i) + "]";
    GRAFT_ASSIGN_OR_RETURN(ModulePointer module, find_choice(registry, choices[i], param));
    GRAFT_RETURN_IF_ERROR(check_scale(choices[i].scale, param));
    if (std::find(seen.begin(), seen.end(), module.get()) != seen.end()) {
      return invalid_argument("The module " + quoted(module->name) + " is named twice.", param);
    }
    seen.push_back(module.get());
    if (choices[i].scale != 0.0F) set.attachments.push_back({std::move(module), choices[i].scale});
  }
  return set;
}

}  // namespace

std::string_view module_name_in(const RegistrySnapshot& registry, std::string_view reference) {
  if (reference.empty() || is_base_name(registry, reference)) return {};
  const std::string_view name = without_base_prefix(registry, reference);
  return name.substr(0, name.rfind('@'));
}

bool is_base_name(const RegistrySnapshot& registry, std::string_view name) {
  return std::find(registry.base_names.begin(), registry.base_names.end(), name) !=
         registry.base_names.end();
}

Result<Resolution> resolve(const RegistrySnapshot& registry, const std::string& model,
                           std::span<const ModuleChoice> choices) {
  Resolution resolution;
  resolution.model = model.empty() ? registry.base_names.front() : model;
  if (model.empty() || is_base_name(registry, model)) {
    if (choices.empty()) {
      resolution.attachments = registry.default_attachments;
      return resolution;
    }
    GRAFT_ASSIGN_OR_RETURN(resolution.attachments, attach_choices(registry, choices));
    return resolution;
  }
  ModulePointer module = find_module(registry, model);
  if (module == nullptr) module = find_module(registry, without_base_prefix(registry, model));
  if (module == nullptr) return unknown_name(registry, model, true, "model");
  if (!choices.empty()) {
    return invalid_argument(
        "'model' names the module " + quoted(module->name) +
            "; to attach a list of modules, name the base in 'model' and every module in the list.",
        "model");
  }
  resolution.attachments.attachments.push_back({std::move(module), 1.0F});
  return resolution;
}

}  // namespace graft
