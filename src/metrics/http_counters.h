// HttpCounters: answers by status. Relaxed atomics; any thread counts, any thread reads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace graft {

class HttpCounters {
 public:
  // 499: the client went before its answer was complete.
  static constexpr std::array<int, 16> kStatuses = {200, 400, 401, 403, 404, 405, 408, 413,
                                                    415, 417, 429, 431, 499, 500, 501, 503};

  void count(int status) {
    std::size_t i = 0;
    while (i < kStatuses.size() && kStatuses[i] != status) ++i;
    counts_[i].fetch_add(1, std::memory_order_relaxed);
  }
  // Of kStatuses[i]; of all others for i = kStatuses.size().
  std::int64_t n_answers(std::size_t i) const { return counts_[i].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<std::int64_t>, kStatuses.size() + 1> counts_ = {};
};

}  // namespace graft
