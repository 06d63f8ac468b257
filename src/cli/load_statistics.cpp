#include "cli/load_statistics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/statistics.h"

namespace graft::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kHistogramBars = 12;

double ms_between(LoadClock::time_point from, LoadClock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

struct Usage {
  std::int64_t n_prompt = 0;
  std::int64_t n_cached = 0;
  std::int64_t n_generated = 0;
};

std::int64_t count_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return 0;
  return std::max<std::int64_t>(0, found->get<std::int64_t>());
}

// Without a usage object every text counts as one token.
Usage usage_of(const LoadAnswer& answer) {
  const Json event = Json::parse(answer.usage_event, nullptr, false);
  const auto fallback = static_cast<std::int64_t>(answer.text_times.size());
  if (!event.is_object() || !event.contains("usage") || !event["usage"].is_object()) {
    return {0, 0, fallback};
  }
  const Json& usage = event["usage"];
  Usage counts{count_in(usage, "prompt_tokens"), 0, count_in(usage, "completion_tokens")};
  const auto details = usage.find("prompt_tokens_details");
  if (details != usage.end() && details->is_object()) {
    counts.n_cached = count_in(*details, "cached_tokens");
  }
  return counts;
}

struct Decoding {
  LoadClock::time_point from;
  LoadClock::time_point to;
};

// The stretches of time in which `n_needed` answers are being decoded at once.
std::vector<Decoding> full_stretches(const LoadRecord& record, std::size_t n_needed) {
  std::vector<std::pair<LoadClock::time_point, int>> changes;
  for (const LoadAnswer& answer : record.answers) {
    if (!answer.failure.empty() || answer.text_times.size() < 2) continue;
    changes.emplace_back(answer.text_times.front(), 1);
    changes.emplace_back(answer.text_times.back(), -1);
  }
  std::sort(changes.begin(), changes.end());
  std::vector<Decoding> stretches;
  std::size_t n_decoding = 0;
  LoadClock::time_point from;
  for (const auto& [at, change] : changes) {
    const bool was_full = n_decoding >= n_needed;
    n_decoding += static_cast<std::size_t>(change);  // wraps back for -1
    const bool is_full = n_decoding >= n_needed;
    if (is_full && !was_full) from = at;
    if (was_full && !is_full && at > from) stretches.push_back({from, at});
  }
  return stretches;
}

void add_phase(const LoadRecord& record, std::size_t n_streams, LoadSummary& summary) {
  const std::size_t n_needed = std::min(n_streams, record.answers.size());
  if (n_needed == 0) return;
  const auto stretches = full_stretches(record, n_needed);
  for (const Decoding& stretch : stretches) {
    summary.all_decode_seconds += ms_between(stretch.from, stretch.to) / 1000;
  }
  std::vector<double> gaps;
  for (const LoadAnswer& answer : record.answers) {
    if (!answer.failure.empty() || answer.text_times.empty()) continue;
    // A text may stand for several tokens.
    const double weight = static_cast<double>(usage_of(answer).n_generated) /
                          static_cast<double>(answer.text_times.size());
    std::size_t at = 0;
    LoadClock::time_point before = answer.text_times.front();
    for (const LoadClock::time_point time : answer.text_times) {
      while (at < stretches.size() && stretches[at].to < time) ++at;
      if (at < stretches.size() && stretches[at].from < time) {
        summary.all_decode_tokens += weight;
        if (stretches[at].from <= before) gaps.push_back(ms_between(before, time));
      }
      before = time;
    }
  }
  summary.all_decode_gap_ms = spread_of(std::move(gaps));
}

struct Values {
  std::vector<double> first;
  std::vector<double> gaps;
  std::vector<double> whole;
};

void add_answer(const LoadAnswer& answer, LoadSummary& summary, Values& values) {
  const Usage usage = usage_of(answer);
  summary.n_prompt_tokens += usage.n_prompt;
  summary.n_cached_tokens += usage.n_cached;
  summary.n_generated_tokens += usage.n_generated;
  values.whole.push_back(ms_between(answer.due, answer.end));
  if (answer.text_times.empty()) return;
  values.first.push_back(ms_between(answer.due, answer.text_times.front()));
  for (std::size_t i = 1; i < answer.text_times.size(); ++i) {
    values.gaps.push_back(ms_between(answer.text_times[i - 1], answer.text_times[i]));
  }
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  Spread spread;
  spread.n_values = values.size();
  if (values.empty()) return spread;
  std::sort(values.begin(), values.end());
  for (const double value : values) spread.mean += value / static_cast<double>(values.size());
  spread.max = values.back();
  spread.p50 = quantile(values, 0.5);
  spread.p90 = quantile(values, 0.9);
  spread.p99 = quantile(std::move(values), 0.99);
  return spread;
}

std::vector<HistogramBar> histogram_of(const std::vector<double>& values, std::size_t n_bars) {
  if (values.empty() || n_bars == 0) return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double smallest = std::max(*low, 1e-3);
  const double ratio = std::max(*high / smallest, 1.0 + 1e-9);
  std::vector<HistogramBar> bars(n_bars);
  for (std::size_t i = 0; i < n_bars; ++i) {
    bars[i].up_to =
        smallest * std::pow(ratio, static_cast<double>(i + 1) / static_cast<double>(n_bars));
  }
  for (const double value : values) {
    const auto bar =
        std::lower_bound(bars.begin(), bars.end() - 1, value,
                         [](const HistogramBar& one, double v) { return one.up_to < v; });
    ++bar->n_values;
  }
  return bars;
}

LoadSummary summarize(const LoadRecord& record, std::size_t n_streams) {
  LoadSummary summary;
  Values values;
  summary.n_requests = static_cast<std::int64_t>(record.answers.size());
  summary.seconds = ms_between(record.begin, record.end) / 1000;
  for (const LoadAnswer& answer : record.answers) {
    if (answer.failure.empty()) {
      add_answer(answer, summary, values);
    } else {
      ++summary.n_failed;
      ++summary.failures[answer.failure];
    }
  }
  summary.gaps = histogram_of(values.gaps, kHistogramBars);
  summary.first_token_ms = spread_of(std::move(values.first));
  summary.gap_ms = spread_of(std::move(values.gaps));
  summary.answer_ms = spread_of(std::move(values.whole));
  add_phase(record, n_streams, summary);
  return summary;
}

}  // namespace graft::cli
