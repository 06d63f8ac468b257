#include "api/module_choice.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "api/errors.h"
#include "api/load_wait.h"

namespace graft::api {
namespace {

constexpr std::size_t kMaxHeaderChoices = 64;
constexpr std::size_t kMaxNameBytes = 512;

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

Error malformed_header() {
  return invalid_argument("The header x-graft-module must be a list of at most " +
                              std::to_string(kMaxHeaderChoices) +
                              " modules: 'name' or 'name*scale', separated by commas.",
                          kModuleHeader);
}

Result<ModuleChoice> parse_header_choice(std::string_view text) {
  const std::size_t star = text.find('*');
  const std::string_view name = trimmed(text.substr(0, star));
  if (name.empty() || name.size() > kMaxNameBytes) return malformed_header();
  ModuleChoice choice;
  choice.name = name;
  if (star == std::string_view::npos) return choice;
  const std::string_view scale = trimmed(text.substr(star + 1));
  const auto read = std::from_chars(scale.data(), scale.data() + scale.size(), choice.scale);
  if (read.ec != std::errc() || read.ptr != scale.data() + scale.size()) return malformed_header();
  return choice;
}

// A header that comes several times is one list (RFC 9110, section 5.3).
std::string joined_header(const HttpRequest& request) {
  std::string value;
  for (const Header& header : request.headers) {
    if (header.first != kModuleHeader) continue;
    if (!value.empty()) value += ",";
    value += header.second;
  }
  return value;
}

bool same_attachment(const Attachment& a, const Attachment& b) {
  return a.module == b.module && a.scale == b.scale && a.start_position == b.start_position;
}

bool same_modules(const AttachmentSet& a, const AttachmentSet& b) {
  return std::equal(a.attachments.begin(), a.attachments.end(), b.attachments.begin(),
                    b.attachments.end(), same_attachment);
}

// One place that names modules, and what it comes to.
struct Wish {
  std::string place;
  std::string param;
  Resolution resolution;
};

Result<std::vector<Wish>> resolve_each(const RegistrySnapshot& registry,
                                       const ModuleWishes& wishes) {
  std::vector<Wish> named;
  if (!wishes.path_module.empty()) {
    auto resolution = resolve(registry, wishes.path_module, {});
    if (!resolution) return Error{resolution.error().code, resolution.error().message, "path"};
    // The base in a path is the base alone, whatever the defaults are.
    if (is_base_name(registry, wishes.path_module)) resolution->attachments = {};
    named.push_back({"the path", "path", std::move(*resolution)});
  }
  if (!wishes.header.empty()) {
    GRAFT_ASSIGN_OR_RETURN(const auto choices, parse_module_header(wishes.header));
    auto resolution = resolve(registry, "", choices);
    if (!resolution) {
      return Error{resolution.error().code, resolution.error().message, kModuleHeader};
    }
    named.push_back({"the header x-graft-module", kModuleHeader, std::move(*resolution)});
  }
  return named;
}

}  // namespace

Result<std::vector<ModuleChoice>> parse_module_header(std::string_view value) {
  std::vector<ModuleChoice> choices;
  while (true) {
    const std::size_t comma = value.find(',');
    if (choices.size() == kMaxHeaderChoices) return malformed_header();
    GRAFT_ASSIGN_OR_RETURN(auto choice, parse_header_choice(value.substr(0, comma)));
    choices.push_back(std::move(choice));
    if (comma == std::string_view::npos) return choices;
    value.remove_prefix(comma + 1);
  }
}

Result<Resolution> resolve_wishes(const RegistrySnapshot& registry, const ModuleWishes& wishes) {
  GRAFT_ASSIGN_OR_RETURN(Resolution body, resolve(registry, wishes.model, wishes.list));
  GRAFT_ASSIGN_OR_RETURN(std::vector<Wish> named, resolve_each(registry, wishes));
  if (named.empty()) return body;
  const bool body_names =
      !wishes.list.empty() || (!wishes.model.empty() && !is_base_name(registry, wishes.model));
  std::string model = std::move(body.model);
  if (wishes.model.empty() && !wishes.path_module.empty()) model = wishes.path_module;
  if (body_names) named.push_back({"the body", "model", std::move(body)});
  for (const Wish& wish : named) {
    if (same_modules(wish.resolution.attachments, named.front().resolution.attachments)) continue;
    return invalid_argument(
        "The request names modules in several places that contradict each "
        "other: " +
            named.front().place + " and " + wish.place + ".",
        named.front().param);
  }
  return Resolution{std::move(model), std::move(named.front().resolution.attachments)};
}

namespace {

constexpr std::size_t kMaxAwaited = 8;  // modules that one request may cause to be loaded

// The unknown modules that the wishes name and that can be had, with the paths to load them from;
// empty when one of them cannot.
std::vector<LoadCall> find_loads(const ModuleStore& store, const ModuleWishes& wishes) {
  std::vector<std::string> references = {wishes.model, wishes.path_module};
  for (const ModuleChoice& choice : wishes.list) references.push_back(choice.name);
  if (const auto header = parse_module_header(wishes.header)) {
    for (const ModuleChoice& choice : *header) references.push_back(choice.name);
  }
  const auto registry = store.registry().get();
  std::set<std::string> names;
  for (const std::string& reference : references) {
    names.emplace(module_name_in(*registry, reference));
  }
  names.erase("");
  for (const auto& module : registry->modules) names.erase(module->name);
  std::vector<LoadCall> loads;
  if (names.size() > kMaxAwaited) return loads;
  for (const std::string& name : names) {
    const auto path = store.find_missing(name);
    if (!path) return {};
    loads.push_back({.name = name, .path = *path, .wanted = true});
  }
  return loads;
}

// Nothing when the modules cannot be loaded either.
std::optional<Answer> await_modules(const RouteCall& route, const ModuleWishes& wishes) {
  ModuleStore* store = route.service.parts().modules;
  if (store == nullptr || !store->autoloads() || route.request.modules_awaited) return {};
  std::vector<std::shared_ptr<LoadOutcome>> outcomes;
  std::vector<LoadCall> loads = find_loads(*store, wishes);
  // Nobody brings in what he may not use.
  for (const LoadCall& load : loads) {
    if (!route.caller.may_use(load.name)) return {};
  }
  for (LoadCall& load : loads) {
    outcomes.push_back(std::make_shared<LoadOutcome>(route.waker));
    if (const Status begun = store->load(std::move(load), outcomes.back()); !begun) {
      return Answer(error_response(as_missing(begun.error())));
    }
  }
  if (outcomes.empty()) return {};
  return Answer(std::make_shared<ModuleWait>(
      route.request, std::move(outcomes), std::vector<Header>{{"x-request-id", route.request_id}}));
}

}  // namespace

Chosen choose_modules(const RouteCall& route, const std::string& model,
                      std::span<const ModuleChoice> list) {
  const auto registry = route.registry();
  const ModuleWishes wishes{model, list, joined_header(route.request), route.path_module};
  auto resolution = resolve_wishes(*registry, wishes);
  if (resolution) return std::move(*resolution);
  if (resolution.error().code == ErrorCode::kNotFound) {
    if (auto wait = await_modules(route, wishes)) return std::move(*wait);
  }
  return Answer(error_response(resolution.error()));
}

}  // namespace graft::api
