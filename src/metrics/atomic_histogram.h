// AtomicHistogram: a histogram with fixed buckets. One thread records, with relaxed atomics and no
// lock; any thread may take a snapshot, whose numbers need not belong to the same instant. Values
// are whole numbers (microseconds, tokens), so sums are exact.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace graft {

// Upper bounds, ascending; a value equal to a bound is inside. What lies above all is counted too.
using BucketBounds = std::span<const std::int64_t>;

struct HistogramSnapshot {
  BucketBounds bounds;
  std::vector<std::int64_t> counts;  // one more than bounds
  std::int64_t sum = 0;

  std::int64_t n_values() const {
    std::int64_t n = 0;
    for (const std::int64_t count : counts) n += count;
    return n;
  }
};

class AtomicHistogram {
 public:
  static constexpr std::size_t kMaxBounds = 24;

  // Requires: at most kMaxBounds bounds, which outlive the histogram.
  explicit AtomicHistogram(BucketBounds bounds);

  void record(std::int64_t value);
  HistogramSnapshot snapshot() const;

 private:
  BucketBounds bounds_;
  std::array<std::atomic<std::int64_t>, kMaxBounds + 1> counts_ = {};
  std::atomic<std::int64_t> sum_{0};
};

}  // namespace graft
