// SpinBarrier: all nth threads of a compute pool meet inside one ggml op. Sense-reversing, so it
// can be used again at once; spins, because threads of one op arrive within microseconds of each
// other, and yields after a while, because a machine may have fewer free cores than threads. Owned
// by whoever inserts the op; everything written before arrive_and_wait() is visible after it.
#pragma once

#include <atomic>
#include <cstdint>

namespace graft {

class SpinBarrier {
 public:
  SpinBarrier() = default;
  SpinBarrier(const SpinBarrier&) = delete;
  SpinBarrier& operator=(const SpinBarrier&) = delete;

  // Returns once n_threads threads have called it. Requires: the same n_threads for all of them.
  void arrive_and_wait(int n_threads);

 private:
  // On a cache line each: late arrivals must not slow down those that watch the sense.
  alignas(64) std::atomic<int> n_arrived_{0};
  alignas(64) std::atomic<std::uint32_t> sense_{0};
};

}  // namespace graft
