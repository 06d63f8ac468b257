#include "api/keys/key_file.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/file_bytes.h"
#include "modules/formats/strict_json.h"

namespace graft::api {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxModules = 1000;
constexpr std::size_t kMaxPatternBytes = 130;
constexpr std::int64_t kMaxConcurrent = 100'000;
constexpr std::int64_t kMaxPerMinute = 1'000'000'000'000;

// Visible ASCII: names stand in logs and error messages.
bool is_plain(std::string_view text, std::size_t max_bytes) {
  return !text.empty() && text.size() <= max_bytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

Result<std::string> string_of(const Json& value, const std::string& name) {
  if (!value.is_string()) return invalid_argument("'" + name + "' must be a string");
  return value.get<std::string>();
}

Result<std::int64_t> limit_of(const Json& value, const std::string& name, std::int64_t max) {
  if (!value.is_number_integer() || value < 1 || value > max) {
    return invalid_argument("'" + name + "' must be a whole number from 1 to " +
                            std::to_string(max));
  }
  return value.get<std::int64_t>();
}

Result<std::vector<std::string>> modules_of(const Json& value) {
  const Error wrong = invalid_argument("'modules' must be a list of at most " +
                                       std::to_string(kMaxModules) + " module names or 'name/*'");
  if (!value.is_array() || value.size() > kMaxModules) return wrong;
  std::vector<std::string> modules;
  for (const Json& entry : value) {
    if (!entry.is_string()) return wrong;
    modules.push_back(entry.get<std::string>());
  }
  return modules;
}

Status set_role(ApiKey& key, const std::string& role) {
  if (role != "inference" && role != "admin") {
    return invalid_argument("'role' must be \"inference\" or \"admin\"");
  }
  key.is_admin = role == "admin";
  return {};
}

Status set_field(ApiKey& key, const std::string& name, const Json& value) {
  if (name == "name" || name == "sha256") return {};
  if (name == "tenant") {
    GRAFT_ASSIGN_OR_RETURN(key.tenant, string_of(value, name));
  } else if (name == "role") {
    GRAFT_ASSIGN_OR_RETURN(const std::string role, string_of(value, name));
    return set_role(key, role);
  } else if (name == "modules") {
    GRAFT_ASSIGN_OR_RETURN(key.modules, modules_of(value));
  } else if (name == "max_concurrent") {
    GRAFT_ASSIGN_OR_RETURN(const std::int64_t n, limit_of(value, name, kMaxConcurrent));
    key.limits.max_concurrent = static_cast<std::int32_t>(n);
  } else if (name == "requests_per_minute") {
    GRAFT_ASSIGN_OR_RETURN(key.limits.requests_per_minute, limit_of(value, name, kMaxPerMinute));
  } else if (name == "tokens_per_minute") {
    GRAFT_ASSIGN_OR_RETURN(key.limits.tokens_per_minute, limit_of(value, name, kMaxPerMinute));
  } else {
    return invalid_argument("'" + name.substr(0, kMaxNameBytes) + "' is not a field of a key");
  }
  return {};
}

Result<ApiKey> parse_line(std::string_view line) {
  GRAFT_ASSIGN_OR_RETURN(const Json object, parse_strict_json(line, {.max_depth = 2}, "the line"));
  if (!object.is_object()) return invalid_argument("the line must be a JSON object");
  for (const char* needed : {"name", "sha256"}) {
    if (!object.contains(needed)) {
      return invalid_argument("'" + std::string(needed) + "' is missing");
    }
  }
  GRAFT_ASSIGN_OR_RETURN(const std::string name, string_of(object["name"], "name"));
  GRAFT_ASSIGN_OR_RETURN(const std::string hex, string_of(object["sha256"], "sha256"));
  auto hash = KeyHash::from_hex(hex);
  if (!hash) return invalid_argument("'sha256' must have 64 digits, 0-9 and a-f");
  ApiKey key{.name = name, .hash = *std::move(hash), .tenant = name};
  for (const auto& [field, value] : object.items()) {
    GRAFT_RETURN_IF_ERROR(set_field(key, field, value));
  }
  GRAFT_RETURN_IF_ERROR(check_key(key));
  return key;
}

}  // namespace

Status check_key(const ApiKey& key) {
  const std::string limit = "1 to " + std::to_string(kMaxNameBytes) + " visible ASCII characters";
  if (!is_plain(key.name, kMaxNameBytes)) return invalid_argument("'name' must have " + limit);
  if (!is_plain(key.tenant, kMaxNameBytes)) return invalid_argument("'tenant' must have " + limit);
  for (const std::string& pattern : key.modules.value_or(std::vector<std::string>())) {
    const std::size_t star = pattern.find('*');
    if (!is_plain(pattern, kMaxPatternBytes) || pattern == "/*" ||
        (star != std::string::npos && (star + 1 != pattern.size() || !pattern.ends_with("/*")))) {
      return invalid_argument("'modules' must hold module names, or namespaces as 'name/*'");
    }
  }
  return {};
}

Result<std::vector<ApiKey>> parse_key_file(std::string_view text, const std::string& what) {
  std::vector<ApiKey> keys;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos || line.starts_with('#')) continue;
    const std::string where = what + ", line " + std::to_string(number) + ": ";
    if (keys.size() == kMaxKeys) {
      return invalid_argument(where + "more than " + std::to_string(kMaxKeys) + " keys");
    }
    auto key = parse_line(line);
    if (!key) return invalid_argument(where + key.error().message);
    keys.push_back(std::move(key).value());
  }
  return keys;
}

Result<std::vector<ApiKey>> read_key_file(const std::string& path) {
  GRAFT_ASSIGN_OR_RETURN(const auto bytes, read_file(path, kMaxKeyFileBytes));
  return parse_key_file({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

std::string key_file_line(const ApiKey& key) {
  nlohmann::ordered_json line = {{"name", key.name}, {"sha256", key.hash.hex()}};
  if (key.tenant != key.name) line["tenant"] = key.tenant;
  if (key.is_admin) line["role"] = "admin";
  if (key.modules) line["modules"] = *key.modules;
  if (key.limits.max_concurrent > 0) line["max_concurrent"] = key.limits.max_concurrent;
  if (key.limits.requests_per_minute > 0) {
    line["requests_per_minute"] = key.limits.requests_per_minute;
  }
  if (key.limits.tokens_per_minute > 0) line["tokens_per_minute"] = key.limits.tokens_per_minute;
  return line.dump();
}

}  // namespace graft::api
