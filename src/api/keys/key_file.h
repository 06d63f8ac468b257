// The file of API keys: one JSON object a line; empty lines and lines that begin with # are
// skipped.
//
//   {"name": "alice", "sha256": "<64 hex digits>", "tenant": "team-a", "role": "inference",
//    "modules": ["team-a/*", "pirate"], "max_concurrent": 4, "requests_per_minute": 60,
//    "tokens_per_minute": 100000}
//
// (on one line). Only name and sha256 are needed. The role is "inference" or "admin"; without
// "modules" a key may use all of them, with [] the base alone; limits that are absent do not
// exist; the tenant is the name unless it is given. Anything else on a line is an error: a
// mistyped limit must not be no limit. Keys themselves are never stored. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/keys/api_key.h"
#include "base/result.h"

namespace graft::api {

inline constexpr std::size_t kMaxKeyFileBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxKeys = 10'000;

// `what` names the file in errors, which also name the line.
Result<std::vector<ApiKey>> parse_key_file(std::string_view text, const std::string& what);
Result<std::vector<ApiKey>> read_key_file(const std::string& path);

// `key` as a line of such a file, without the line end.
std::string key_file_line(const ApiKey& key);

// Whether `key` can stand in such a file.
Status check_key(const ApiKey& key);

}  // namespace graft::api
