#include "cli/flag_checks.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace graft::cli {

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

CLI::Validator in_range(double low, double high, bool whole) {
  const auto check = [=](std::string& text) -> std::string {
    const std::optional<double> value = parse_number(text);
    if (value && *value >= low && *value <= high && (!whole || *value == std::floor(*value))) {
      text = whole ? std::to_string(static_cast<std::int64_t>(*value)) : text;
      return "";
    }
    return "'" + text.substr(0, 40) + "' is not " + (whole ? "a whole number" : "a number") +
           " from " + shown(low) + " to " + shown(high);
  };
  return {check, "", "range"};
}

CLI::Validator one_of(std::vector<std::string> words) {
  const auto check = [words = std::move(words)](std::string& text) -> std::string {
    std::string all;
    for (const std::string& word : words) {
      if (word == text) return "";
      all += (all.empty() ? "" : ", ") + word;
    }
    return "'" + text.substr(0, 40) + "' is not one of: " + all;
  };
  return {check, "", "one of"};
}

CLI::Option* add_seconds(CLI::App& app, const char* name, std::chrono::milliseconds& value,
                         const char* text) {
  constexpr double kDay = 86400;
  return app
      .add_option_function<double>(
          name,
          [&value](double seconds) {
            value = std::chrono::milliseconds(std::llround(seconds * 1000));
          },
          text)
      ->check(in_range(0.001, kDay, false))
      ->type_name("SECONDS");
}

}  // namespace graft::cli
