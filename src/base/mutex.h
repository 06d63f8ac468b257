// Mutex, lock and condition variable with clang's thread-safety annotations, which std::mutex of
// libstdc++ lacks; and ThreadRole, a capability without a lock for single-writer state.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/thread_annotations.h"

namespace graft {

class GRAFT_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() GRAFT_ACQUIRE() { mutex_.lock(); }
  void unlock() GRAFT_RELEASE() { mutex_.unlock(); }

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

class GRAFT_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GRAFT_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() GRAFT_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class ConditionVariable {
 public:
  // Requires: `mutex` is held. May wake without reason: call in a loop over the condition.
  void wait(Mutex& mutex) GRAFT_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Requires: `mutex` is held. Returns when woken or when `timeout` has passed.
  void wait_for(Mutex& mutex, std::chrono::nanoseconds timeout) GRAFT_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_for(lock, timeout);
    lock.release();
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// State guarded by a role belongs to one thread; functions that touch it require the role, and the
// thread's entry point (or a lambda it runs) states that it holds it.
class GRAFT_CAPABILITY("role") ThreadRole {
 public:
  void assert_here() const GRAFT_ASSERT_CAPABILITY(this) {}
};

}  // namespace graft
