#include "scheduler/pace.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace graft {

namespace {

constexpr std::array<std::int32_t, 15> kLadder = {8,  12, 16,  20,  24,  28,  32, 48,
                                                  64, 96, 128, 192, 256, 384, 512};
constexpr std::int32_t kRowsOfAKernel = 4;
constexpr std::int32_t kStepBeforeMeasuring = 32;
constexpr std::int32_t kLeastShare = 4;  // a prompt goes on, however many decode

// Moves `average` towards `value`. A machine's hiccup is worth at most four times the average.
void update(double& average, double value) {
  constexpr double kWeight = 0.15;
  if (value <= 0) return;
  average = average == 0 ? value : average + kWeight * (std::min(value, 4 * average) - average);
}

int bucket_of(std::int32_t n_decode, int n_buckets) {
  const auto width = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(n_decode)));
  return std::min(width, n_buckets) - 1;
}

}  // namespace

double Pace::quiet_ms(std::int32_t n_decode) const {
  const int wanted = bucket_of(n_decode, kBuckets);
  for (int distance = 0; distance < kBuckets; ++distance) {
    for (const int bucket : {wanted - distance, wanted + distance}) {
      if (bucket < 0 || bucket >= kBuckets) continue;
      const double ms = quiet_ms_[static_cast<std::size_t>(bucket)];
      if (ms > 0) return ms;
    }
  }
  return 0;
}

void Pace::record(std::int32_t n_decode, std::int32_t n_prefill, double ms) {
  if (n_prefill == 0) {
    if (n_decode == 0) return;
    update(quiet_ms_[static_cast<std::size_t>(bucket_of(n_decode, kBuckets))], ms);
    return;
  }
  const double quiet = n_decode > 0 ? quiet_ms(n_decode) : 0;
  if (n_decode > 0 && quiet == 0) return;
  // The first rows of a prompt step pay for reading the weights, so a few alone say little.
  if (n_decode == 0 && n_prefill < kLadder.front()) return;
  update(ms_per_prefill_row_, (ms - quiet) / n_prefill);
}

std::int32_t Pace::prefill_share(const StreamCounts& counts) const {
  const std::int32_t n_decode = counts.n_decode;
  const std::int32_t n_prefill = std::max(0, counts.n_streams - n_decode);
  const double quiet = n_decode > 0 ? quiet_ms(n_decode) : 0;
  double n_rows = counts.n_settled == 0 ? kLadder.back() : kStepBeforeMeasuring;
  if (quiet > 0 && ms_per_prefill_row_ > 0) {
    // A decode row costs no less than a prompt row: so much is known of steps never seen.
    const double later =
        std::max(quiet_ms(n_decode + n_prefill), quiet + ms_per_prefill_row_ * n_prefill);
    const double ratio =
        std::max(1.0, static_cast<double>(n_prefill) / std::max(1, counts.n_settled));
    n_rows = n_decode + (max_gap_factor_ * ratio * later - quiet) / ms_per_prefill_row_;
  }
  const std::int32_t least = n_decode + kLeastShare + kRowsOfAKernel - 1;
  std::int32_t n_total = std::max(kLadder.front(), least / kRowsOfAKernel * kRowsOfAKernel);
  for (const std::int32_t rung : kLadder) {
    if (rung <= n_rows) n_total = std::max(n_total, rung);
  }
  return n_total - n_decode;
}

}  // namespace graft
