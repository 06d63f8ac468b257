// Flags with checked values, for the files that declare flags: ranges and lists of words whose
// errors name the value and the limit. Internal to the command line; one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graft::cli {

constexpr double kMaxInt = std::numeric_limits<std::int32_t>::max();

// A finite number and nothing else.
std::optional<double> parse_number(std::string_view text);
// As messages show it.
std::string shown(double value);

CLI::Validator in_range(double low, double high, bool whole);
CLI::Validator one_of(std::vector<std::string> words);

struct Limits {
  double low = 0;
  double high = 0;
};

template <typename T>
CLI::Option* add_whole(CLI::App& app, const char* name, T& value, Limits limits, const char* text) {
  return app.add_option(name, value, text)
      ->check(in_range(limits.low, limits.high, true))
      ->type_name("N");
}

template <typename T>
CLI::Option* add_number(CLI::App& app, const char* name, T& value, Limits limits,
                        const char* text) {
  return app.add_option(name, value, text)
      ->check(in_range(limits.low, limits.high, false))
      ->type_name("X");
}

// A time in seconds, with fractions, from a millisecond to a day.
CLI::Option* add_seconds(CLI::App& app, const char* name, std::chrono::milliseconds& value,
                         const char* text);

}  // namespace graft::cli
