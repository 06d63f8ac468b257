// The log of the process: lines on standard error through spdlog. Never prompts, keys or tokens.
// Thread-safe. Messages are built by the caller; levels are cheap to ask for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace graft {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  bool json = false;  // one JSON object per line
};

// Call once, before other threads start.
void init_log(const LogOptions& options);
bool log_enabled(LogLevel level);
void log(LogLevel level, std::string_view message);

// A message with values under names: `message name=value` as text, members of the object as JSON.
// Names are our own words; values may be anything.
struct LogField {
  std::string_view name;
  std::variant<std::int64_t, double, std::string> value;
};
void log(LogLevel level, std::string_view message, std::span<const LogField> fields);

// What log() writes behind time and level. Pure; for tests.
std::string log_text(std::string_view message, std::span<const LogField> fields);
std::string log_json(std::string_view message, std::span<const LogField> fields);

inline void log_debug(std::string_view message) { log(LogLevel::kDebug, message); }
inline void log_info(std::string_view message) { log(LogLevel::kInfo, message); }
inline void log_warning(std::string_view message) { log(LogLevel::kWarning, message); }
inline void log_error(std::string_view message) { log(LogLevel::kError, message); }

}  // namespace graft
