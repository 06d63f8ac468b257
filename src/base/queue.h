// Queue<T>: bounded, many producers, many consumers. One of the three ways across threads
// (the others: Snapshot<T>, atomics).
//
// push() never blocks: a full or closed queue is an error, which becomes 429 or 503 at the edge.
// close() wakes every waiter; what is queued can still be drained.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"

namespace graft {

template <typename T>
class Queue {
 public:
  explicit Queue(std::size_t capacity) : capacity_(capacity) {}

  Status push(T value) GRAFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_) return Error{ErrorCode::kUnavailable, "the server is shutting down", {}};
      if (items_.size() >= capacity_) {
        return Error{ErrorCode::kResourceExhausted,
                     "the queue is full (" + std::to_string(capacity_) + " entries)",
                     {}};
      }
      items_.push_back(std::move(value));
    }
    not_empty_.notify_one();
    return {};
  }

  // Waits for an item; nothing when the queue is closed and empty.
  std::optional<T> pop() GRAFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) not_empty_.wait(mutex_);
    return take_front();
  }

  // Waits for an item at most `timeout`.
  std::optional<T> pop_for(std::chrono::nanoseconds timeout) GRAFT_EXCLUDES(mutex_) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left.count() <= 0) break;
      not_empty_.wait_for(mutex_, left);
    }
    return take_front();
  }

  // Takes all that is there, without waiting.
  std::vector<T> drain() GRAFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    std::vector<T> all(std::make_move_iterator(items_.begin()),
                       std::make_move_iterator(items_.end()));
    items_.clear();
    return all;
  }

  void close() GRAFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    not_empty_.notify_all();
  }

  bool closed() const GRAFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return closed_;
  }

  std::size_t size() const GRAFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> take_front() GRAFT_REQUIRES(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> front(std::move(items_.front()));
    items_.pop_front();
    return front;
  }

  const std::size_t capacity_;
  mutable Mutex mutex_;
  ConditionVariable not_empty_;
  std::deque<T> items_ GRAFT_GUARDED_BY(mutex_);
  bool closed_ GRAFT_GUARDED_BY(mutex_) = false;
};

}  // namespace graft
