#include "grafting/kernels/spin_barrier.h"

#include <hwy/cache_control.h>

#include <thread>

namespace graft {

void SpinBarrier::arrive_and_wait(int n_threads) {
  if (n_threads == 1) {
    return;
  }
  const std::uint32_t sense = sense_.load(std::memory_order_relaxed);
  if (n_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads) {
    n_arrived_.store(0, std::memory_order_relaxed);
    sense_.store(sense + 1, std::memory_order_release);
    return;
  }
  constexpr int kSpinsBeforeYield = 1000;  // some tens of microseconds
  for (int spins = 0; sense_.load(std::memory_order_acquire) == sense; ++spins) {
    if (spins < kSpinsBeforeYield) {
      hwy::Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace graft
