// `graft bench serve`: load-tests a server over HTTP and prints what it found.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cli/load_bodies.h"
#include "cli/load_statistics.h"
#include "cli/loading.h"
#include "cli/run.h"
#include "cli/stop_signal.h"
#include "http/client/load_client.h"

namespace graft::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kBarWidth = 40;

// Of this process; the load runs on its only thread.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::vector<std::chrono::microseconds> arrivals(const BenchServeCommand& command) {
  std::vector<std::chrono::microseconds> due;
  if (command.rate <= 0) return due;
  std::mt19937 random(command.seed);
  std::exponential_distribution<double> gap(command.rate);
  double at_s = 0;
  for (std::int32_t i = 0; i < command.n_requests; ++i) {
    due.emplace_back(std::llround(at_s * 1e6));
    at_s += command.poisson ? gap(random) : 1 / command.rate;
  }
  return due;
}

LoadTarget target_of(const BenchServeCommand& command, const LoadBodies& bodies) {
  LoadTarget target;
  target.host = command.host;
  target.port = command.port;
  target.path = command.base_path + bodies.path();
  if (!command.api_key.empty()) {
    target.headers.emplace_back("Authorization", "Bearer " + command.api_key);
  }
  return target;
}

Json to_json(const Spread& spread) {
  return {{"mean", spread.mean}, {"p50", spread.p50}, {"p90", spread.p90},
          {"p99", spread.p99},   {"max", spread.max}, {"n", spread.n_values}};
}

Json to_json(const LoadSummary& summary, double client_cpu) {
  Json gaps = Json::array();
  for (const HistogramBar& bar : summary.gaps) {
    gaps.push_back({{"up_to_ms", bar.up_to}, {"n", bar.n_values}});
  }
  return {{"requests", summary.n_requests},
          {"failed", summary.n_failed},
          {"failures", summary.failures},
          {"seconds", summary.seconds},
          {"prompt_tokens", summary.n_prompt_tokens},
          {"cached_tokens", summary.n_cached_tokens},
          {"generated_tokens", summary.n_generated_tokens},
          {"tokens_per_second", summary.tokens_per_second()},
          {"prompt_tokens_per_second", summary.prompt_tokens_per_second()},
          {"requests_per_second", summary.requests_per_second()},
          {"all_decode_seconds", summary.all_decode_seconds},
          {"all_decode_tokens_per_second", summary.all_decode_tokens_per_second()},
          {"first_token_ms", to_json(summary.first_token_ms)},
          {"inter_token_ms", to_json(summary.gap_ms)},
          {"all_decode_inter_token_ms", to_json(summary.all_decode_gap_ms)},
          {"answer_ms", to_json(summary.answer_ms)},
          {"inter_token_histogram", gaps},
          {"client_cpu", client_cpu}};
}

void print_spread(const char* name, const Spread& spread) {
  std::printf("%-22s %9.2f %9.2f %9.2f %9.2f %9.2f\n", name, spread.mean, spread.p50, spread.p90,
              spread.p99, spread.max);
}

void print_histogram(const std::vector<HistogramBar>& bars) {
  std::int64_t most = 1;
  for (const HistogramBar& bar : bars) most = std::max(most, bar.n_values);
  if (!bars.empty()) std::printf("\ntime between tokens, up to\n");
  for (const HistogramBar& bar : bars) {
    const auto width =
        static_cast<std::size_t>(bar.n_values) * kBarWidth / static_cast<std::size_t>(most);
    std::printf("%10.2f ms %8lld %s\n", bar.up_to, static_cast<long long>(bar.n_values),
                std::string(width, '#').c_str());
  }
}

void print_text(const LoadSummary& summary, double client_cpu) {
  std::printf("%lld requests, %lld failed, %.2f s\n", static_cast<long long>(summary.n_requests),
              static_cast<long long>(summary.n_failed), summary.seconds);
  for (const auto& [reason, n] : summary.failures) {
    std::printf("  %lld x %s\n", static_cast<long long>(n), reason.c_str());
  }
  std::printf(
      "%.1f tokens/s generated, %.1f tokens/s of prompts (%lld of %lld cached), "
      "%.2f requests/s\n",
      summary.tokens_per_second(), summary.prompt_tokens_per_second(),
      static_cast<long long>(summary.n_cached_tokens),
      static_cast<long long>(summary.n_prompt_tokens), summary.requests_per_second());
  if (summary.all_decode_seconds > 0) {
    std::printf("%.1f tokens/s while all streams decode (%.2f s)\n",
                summary.all_decode_tokens_per_second(), summary.all_decode_seconds);
  }
  std::printf("\n%-22s %9s %9s %9s %9s %9s\n", "milliseconds", "mean", "p50", "p90", "p99", "max");
  print_spread("first token", summary.first_token_ms);
  print_spread("between tokens", summary.gap_ms);
  if (summary.all_decode_seconds > 0) {
    print_spread("- while all decode", summary.all_decode_gap_ms);
  }
  print_spread("whole answer", summary.answer_ms);
  print_histogram(summary.gaps);
  std::printf("\nthis client used %.1f%% of a core\n", 100 * client_cpu);
}

}  // namespace

int run(const BenchServeCommand& command) {
  install_stop_signal();
  const LoadBodies bodies(command);
  LoadPlan plan;
  plan.n_requests = static_cast<std::size_t>(command.n_requests);
  plan.make_body = [&bodies](std::size_t i) { return bodies.body(i); };
  plan.due = arrivals(command);
  plan.n_streams = static_cast<std::size_t>(command.n_streams);
  plan.timeout = std::chrono::seconds(command.timeout_s);
  plan.stop_requested = stop_requested;
  const double cpu_before = cpu_seconds();
  const auto record = run_load(target_of(command, bodies), plan);
  const double cpu_used = cpu_seconds() - cpu_before;
  if (!record) return report(record.error());
  const LoadSummary summary =
      summarize(*record, plan.due.empty() ? plan.n_streams : std::size_t{0});
  const double client_cpu = summary.seconds > 0 ? cpu_used / summary.seconds : 0;
  if (command.json) {
    std::cout << to_json(summary, client_cpu).dump(2, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  } else {
    print_text(summary, client_cpu);
  }
  return summary.n_failed == 0 && !record->stopped ? kExitOk : kExitFailure;
}

}  // namespace graft::cli
