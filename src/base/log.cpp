#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

namespace graft {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: return spdlog::level::off;
  }
  return spdlog::level::off;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_color_mt("graft");
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    return made;
  }();
  return *instance;
}

// As a JSON string, with its quotes.
std::string json_string(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

// A value stands as it is unless that would be unclear.
std::string plain_or_quoted(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c > 0x20 && c < 0x7F && c != '"' && c != '=' && c != '\\';
  });
  return plain ? text : json_string(text);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", std::isfinite(value) ? value : 0.0);
  return text;
}

std::string written(const LogField& field, bool json) {
  if (const auto* whole = std::get_if<std::int64_t>(&field.value)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&field.value)) return number(*real);
  const std::string& text = std::get<std::string>(field.value);
  return json ? json_string(text) : plain_or_quoted(text);
}

bool g_json = false;  // NOLINT: written once by init_log, before threads start

}  // namespace

void init_log(const LogOptions& options) {
  logger().set_level(to_spdlog(options.level));
  logger().flush_on(spdlog::level::info);
  g_json = options.json;
  if (options.json) {
    logger().set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})");
  }
}

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

std::string log_text(std::string_view message, std::span<const LogField> fields) {
  std::string line(message);
  for (const LogField& field : fields) {
    line.append(" ").append(field.name).append("=").append(written(field, false));
  }
  return line;
}

std::string log_json(std::string_view message, std::span<const LogField> fields) {
  std::string line = "\"message\":" + json_string(message);
  for (const LogField& field : fields) {
    line.append(",\"").append(field.name).append("\":").append(written(field, true));
  }
  return line;
}

void log(LogLevel level, std::string_view message, std::span<const LogField> fields) {
  if (!log_enabled(level)) return;
  logger().log(to_spdlog(level), "{}",
               g_json ? log_json(message, fields) : log_text(message, fields));
}

void log(LogLevel level, std::string_view message) { log(level, message, {}); }

}  // namespace graft
