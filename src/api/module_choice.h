// Which modules shape a request. A client may say it in four places: `model`, the body's list
// (`modules` or `lora`), the header x-graft-module, and the path /m/NAME/v1/.... Several places may
// name modules if they say the same; a contradiction is an error, as is an unknown name.
// Pure over the registry's snapshot; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/routes.h"
#include "base/result.h"
#include "core/request.h"
#include "router/resolve.h"

namespace graft::api {

inline constexpr const char* kModuleHeader = "x-graft-module";

// The value of the header: "name*scale, name, ...". A missing scale is 1.
Result<std::vector<ModuleChoice>> parse_module_header(std::string_view value);

// What a request says, where it says it. Empty = it does not.
struct ModuleWishes {
  const std::string& model;
  std::span<const ModuleChoice> list;
  std::string header;
  const std::string& path_module;
};

Result<Resolution> resolve_wishes(const RegistrySnapshot& registry, const ModuleWishes& wishes);

// What every route that computes with modules asks first: what was chosen, or the answer that says
// why nothing was. `model` and `list` come from the body.
using Chosen = std::variant<Resolution, Answer>;
Chosen choose_modules(const RouteCall& route, const std::string& model,
                      std::span<const ModuleChoice> list);

}  // namespace graft::api
