// Pace: how many prompt tokens a step may carry beside decode rows, learnt from measured step
// times, so that streams that others read do not stutter while a long prompt is computed.
//
// A quiet step (decode rows only) of n rows takes q(n); each prompt row beside them adds r. Streams
// that are still computing their prompts will decode soon, so with d decode rows of s streams a
// step may take max_gap_factor * q(s): q(d) + share * r must stay below that. Where more streams
// wait for their first token than are settled in decoding, the limit grows with their ratio (of one
// settled stream where there is none): a gap is worth it when more streams gain by it than suffer
// from it. A stream is settled after its first kSettledTokens: a burst of requests is computed
// nearly as one, and nobody's steady reading stutters.
// Decode and prompt rows together come from a short ladder of multiples of 4, because llama.cpp
// builds a new graph whenever their number changes and its kernels take rows by fours.
//
// Only numbers go in: no clock of its own. Belongs to the engine thread.
#pragma once

#include <array>
#include <cstdint>

namespace graft {

inline constexpr std::int32_t kSettledTokens = 16;

// The streams of a step. Those that do not decode compute their prompts or wait for a place.
struct StreamCounts {
  std::int32_t n_streams = 0;
  std::int32_t n_decode = 0;
  std::int32_t n_settled = 0;  // of those that decode
};

class Pace {
 public:
  // Requires: max_gap_factor > 1.
  explicit Pace(double max_gap_factor) : max_gap_factor_(max_gap_factor) {}

  // A step of n_decode + n_prefill rows took `ms`.
  void record(std::int32_t n_decode, std::int32_t n_prefill, double ms);

  // Prompt rows beside the decode rows; at least 4. Before anything is known, what fills a step of
  // 32 rows; the longest step where no stream is settled.
  std::int32_t prefill_share(const StreamCounts& counts) const;

 private:
  // Times depend on the number of decode rows: one average per power of two.
  static constexpr int kBuckets = 9;
  double quiet_ms(std::int32_t n_decode) const;

  double max_gap_factor_;
  std::array<double, kBuckets> quiet_ms_ = {};  // 0 = not yet measured
  double ms_per_prefill_row_ = 0;
};

}  // namespace graft
