// Pace: how many prompt tokens a step may carry beside decode rows, learnt from measured step
// times, so that streams that others read do not stutter while a long prompt is computed.
//
// A quiet step (decode rows only) of n rows takes q(n); each prompt row beside them adds r. The
// share is the largest of a short ladder with q + share * r <= max_gap_factor * q. A ladder,
// because llama.cpp builds a new graph whenever the number of rows changes.
//
// Only numbers go in: no clock of its own. Belongs to the engine thread.
#pragma once

#include <array>
#include <cstdint>

namespace graft {

class Pace {
 public:
  // Requires: max_gap_factor > 1.
  explicit Pace(double max_gap_factor) : max_gap_factor_(max_gap_factor) {}

  // A step of n_decode + n_prefill rows took `ms`.
  void record(std::int32_t n_decode, std::int32_t n_prefill, double ms);

  // Rows of the ladder 8, 16, ... 512 beside `n_decode` decode rows; 32 before anything is known.
  std::int32_t prefill_share(std::int32_t n_decode) const;

 private:
  // Times depend on the number of decode rows: one average per power of two.
  static constexpr int kBuckets = 9;
  double quiet_ms(std::int32_t n_decode) const;

  double max_gap_factor_;
  std::array<double, kBuckets> quiet_ms_ = {};  // 0 = not yet measured
  double ms_per_prefill_row_ = 0;
};

}  // namespace graft
