// What a load test found: from the moments that run_load() noted to the numbers people read. Pure;
// any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "http/client/load_client.h"

namespace graft::cli {

struct Spread {
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
  std::size_t n_values = 0;
};

// Requires: nothing; all zero for no values.
Spread spread_of(std::vector<double> values);

// Equal steps of a logarithmic scale, from the smallest value to the largest.
struct HistogramBar {
  double up_to = 0;
  std::int64_t n_values = 0;
};
std::vector<HistogramBar> histogram_of(const std::vector<double>& values, std::size_t n_bars);

// Latencies of whole answers only; failed requests appear in `failures`.
struct LoadSummary {
  std::int64_t n_requests = 0;
  std::int64_t n_failed = 0;
  std::map<std::string, std::int64_t> failures;  // how often, by reason
  double seconds = 0;                            // from the first request to the last end
  std::int64_t n_prompt_tokens = 0;
  std::int64_t n_cached_tokens = 0;  // of the prompts, as the server says
  std::int64_t n_generated_tokens = 0;
  Spread first_token_ms;
  Spread gap_ms;     // between texts of one answer
  Spread answer_ms;  // whole answers
  std::vector<HistogramBar> gaps;
  // The time in which every stream was between its first and its last text. Closed loop only.
  double all_decode_seconds = 0;
  double all_decode_tokens = 0;
  Spread all_decode_gap_ms;  // of gaps that lie in it

  double tokens_per_second() const { return seconds > 0 ? tokens() / seconds : 0; }
  double prompt_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(n_prompt_tokens) / seconds : 0;
  }
  double requests_per_second() const {
    return seconds > 0 ? static_cast<double>(n_requests - n_failed) / seconds : 0;
  }
  double all_decode_tokens_per_second() const {
    return all_decode_seconds > 0 ? all_decode_tokens / all_decode_seconds : 0;
  }

 private:
  double tokens() const { return static_cast<double>(n_generated_tokens); }
};

// `n_streams` of a closed loop; 0 for an open one, which has no phase in which all decode.
LoadSummary summarize(const LoadRecord& record, std::size_t n_streams);

}  // namespace graft::cli
