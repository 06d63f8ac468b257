#include "api/routes.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "api/json_text.h"

namespace graft::api {
namespace {

// clang-format off
constexpr Route kRoutes[] = {
    // method, path, role, heavy, when_ready, function
    {"POST", "/v1/chat/completions", Role::kInference, true, true, answer_chat_completions},
    {"POST", "/chat/completions", Role::kInference, true, true, answer_chat_completions},
    {"POST", "/v1/completions", Role::kInference, true, true, answer_completions},
    {"POST", "/completions", Role::kInference, true, true, answer_completions},
    {"POST", "/v1/messages", Role::kInference, true, true, answer_messages},
    {"POST", "/v1/messages/count_tokens", Role::kInference, true, true, answer_count_tokens},
    {"POST", "/v1/responses", Role::kInference, true, true, answer_responses},
    {"POST", "/responses", Role::kInference, true, true, answer_responses},
    {"POST", "/v1/embeddings", Role::kInference, true, true, answer_embeddings},
    {"POST", "/embeddings", Role::kInference, true, true, answer_embeddings},
    {"POST", "/tokenize", Role::kInference, true, true, answer_tokenize},
    {"POST", "/detokenize", Role::kInference, true, true, answer_detokenize},
    {"POST", "/apply-template", Role::kInference, true, true, answer_apply_template},
    {"GET", "/tokenizer_info", Role::kInference, false, true, answer_tokenizer_info},
    {"GET", "/props", Role::kInference, false, true, answer_props},
    {"GET", "/slots", Role::kAdmin, false, true, answer_slots},
    {"GET", "/openapi.json", Role::kInference, true, true, answer_openapi},
    {"GET", "/v1/models", Role::kInference, false, false, answer_models},
    {"GET", "/models", Role::kInference, false, false, answer_models},
    {"GET", "/v1/models/*", Role::kInference, false, false, answer_model},
    {"GET", "/models/*", Role::kInference, false, false, answer_model},
    {"POST", "/v1/load_lora_adapter", Role::kAdmin, true, true, answer_load_adapter},
    {"POST", "/v1/unload_lora_adapter", Role::kAdmin, true, true, answer_unload_adapter},
    {"POST", "/load_lora_adapter", Role::kAdmin, true, true, answer_load_adapter},
    {"POST", "/unload_lora_adapter", Role::kAdmin, true, true, answer_unload_adapter},
    {"GET", "/lora-adapters", Role::kInference, false, false, answer_list_adapters},
    {"POST", "/lora-adapters", Role::kAdmin, true, true, answer_set_scales},
    {"GET", "/health", Role::kOpen, false, false, answer_health},
    {"GET", "/v1/health", Role::kOpen, false, false, answer_health},
    {"GET", "/version", Role::kOpen, false, false, answer_version},
    {"GET", "/load", Role::kOpen, false, false, answer_load},
    {"GET", "/metrics", Role::kOpen, true, false, answer_metrics},
};
// clang-format on

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool matches(const Route& route, std::string_view path, std::string_view& tail) {
  tail = {};
  if (!route.path.ends_with("/*")) return path == route.path;
  const std::string_view prefix = route.path.substr(0, route.path.size() - 1);
  if (!path.starts_with(prefix) || path.size() == prefix.size()) return false;
  tail = path.substr(prefix.size());
  return true;
}

HttpResponse unknown_path() {
  return error_response(
      ApiError{404, "invalid_request_error", "There is nothing at this path.", "", "not_found"});
}

HttpResponse wrong_method(const std::vector<std::string_view>& allowed) {
  std::string list;
  for (const std::string_view method : allowed) {
    list += (list.empty() ? "" : ", ") + std::string(method);
  }
  HttpResponse response =
      error_response(ApiError{405, "invalid_request_error", "This path answers to " + list + ".",
                              "", "method_not_allowed"});
  response.headers.emplace_back("allow", list);
  return response;
}

std::variant<RouteMatch, HttpResponse> find_plain_route(std::string_view method,
                                                        std::string_view path) {
  std::vector<std::string_view> allowed;
  for (const Route& route : kRoutes) {
    std::string_view tail;
    if (!matches(route, path, tail)) continue;
    if (route.method != method) {
      allowed.push_back(route.method);
      continue;
    }
    RouteMatch match;
    match.route = &route;
    if (!decode_path(tail, match.path_tail)) return unknown_path();
    return match;
  }
  if (!allowed.empty()) return wrong_method(allowed);
  return unknown_path();
}

// `path` is what follows "/m/". A name has one part or two; the first that leaves a route behind it
// is meant, since a part may itself be called "v1".
std::variant<RouteMatch, HttpResponse> find_module_route(std::string_view method,
                                                         std::string_view path) {
  std::variant<RouteMatch, HttpResponse> result = unknown_path();
  std::size_t end = 0;
  for (int n_parts = 1; n_parts <= 2; ++n_parts) {
    end = path.find('/', end + (n_parts == 1 ? 0 : 1));
    if (end == std::string_view::npos) break;
    const std::string_view rest = path.substr(end);
    if (!rest.starts_with("/v1/")) continue;
    auto found = find_plain_route(method, rest);
    auto* match = std::get_if<RouteMatch>(&found);
    if (match == nullptr) {
      if (std::get<HttpResponse>(found).status == 405) result = std::move(found);
      continue;
    }
    const std::string_view name = path.substr(0, end);
    // An encoded slash would move the border between the parts.
    const bool decoded = !name.empty() && name.front() != '/' && name.back() != '/' &&
                         decode_path(name, match->module) &&
                         std::count(name.begin(), name.end(), '/') ==
                             std::count(match->module.begin(), match->module.end(), '/');
    if (!decoded || match->route->role != Role::kInference) return unknown_path();
    return found;
  }
  return result;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

bool decode_path(std::string_view path, std::string& decoded) {
  decoded.clear();
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      decoded.push_back(path[i]);
      continue;
    }
    if (i + 2 >= path.size()) return false;
    const int high = hex_value(path[i + 1]);
    const int low = hex_value(path[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    decoded.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return is_valid_utf8(decoded);
}

std::variant<RouteMatch, HttpResponse> find_route(std::string_view method,
                                                  std::string_view target) {
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  if (method == "HEAD") method = "GET";  // http/ leaves the body out
  constexpr std::string_view kModulePrefix = "/m/";
  if (path.starts_with(kModulePrefix)) {
    return find_module_route(method, path.substr(kModulePrefix.size()));
  }
  return find_plain_route(method, path);
}

}  // namespace graft::api
