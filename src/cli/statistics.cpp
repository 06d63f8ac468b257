#include "cli/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace graft::cli {
namespace {

double log_sum_exp(std::span<const float> logits) {
  const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

}  // namespace

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

LogitDistance logit_distance(std::span<const float> a, std::span<const float> b) {
  GRAFT_CHECK(a.size() == b.size() && !a.empty());
  LogitDistance distance;
  const double norm_a = log_sum_exp(a);
  const double norm_b = log_sum_exp(b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    distance.max_abs = std::max(distance.max_abs, std::fabs(x - y));
    distance.mean_abs += std::fabs(x - y) / static_cast<double>(a.size());
    const double log_p = x - norm_a;
    distance.kl += std::exp(log_p) * (log_p - (y - norm_b));
  }
  distance.kl = std::max(distance.kl, 0.0);
  distance.same_top = std::max_element(a.begin(), a.end()) - a.begin() ==
                      std::max_element(b.begin(), b.end()) - b.begin();
  distance.bit_equal = std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  return distance;
}

}  // namespace graft::cli
