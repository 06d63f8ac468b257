// Snapshot<T>: the newest immutable value of something that many threads read. Readers copy the
// pointer under the lock and read without it; a reader keeps what it has as long as it wants.
//
// Not std::atomic<std::shared_ptr>: its load in libstdc++ 12 races under ThreadSanitizer.
#pragma once

#include <memory>
#include <utility>

#include "base/mutex.h"

namespace graft {

template <typename T>
class Snapshot {
 public:
  // Requires: `value` is not null, here and in set().
  explicit Snapshot(std::shared_ptr<const T> value) : value_(std::move(value)) {}

  std::shared_ptr<const T> get() const GRAFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return value_;
  }

  void set(std::shared_ptr<const T> value) GRAFT_EXCLUDES(mutex_) {
    std::shared_ptr<const T> old;  // destroyed after the lock is gone
    MutexLock lock(mutex_);
    old = std::exchange(value_, std::move(value));
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const T> value_ GRAFT_GUARDED_BY(mutex_);
};

}  // namespace graft
