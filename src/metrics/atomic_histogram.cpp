#include "metrics/atomic_histogram.h"

#include <algorithm>

#include "base/check.h"

namespace graft {

AtomicHistogram::AtomicHistogram(BucketBounds bounds) : bounds_(bounds) {
  GRAFT_CHECK(bounds.size() <= kMaxBounds);
}

void AtomicHistogram::record(std::int64_t value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

HistogramSnapshot AtomicHistogram::snapshot() const {
  HistogramSnapshot snapshot;
  snapshot.bounds = bounds_;
  for (std::size_t i = 0; i <= bounds_.size(); ++i) {
    snapshot.counts.push_back(counts_[i].load(std::memory_order_relaxed));
  }
  snapshot.sum = sum_.load(std::memory_order_relaxed);
  return snapshot;
}

}  // namespace graft
