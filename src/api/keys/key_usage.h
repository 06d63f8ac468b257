// KeyUsage: how much of its limits a key is using now. Outlives a reload of the keys, so that a
// reload gives nobody a fresh minute. Thread-safe; add_tokens() takes no lock and is for the engine
// thread. KeyPermit: a running request's place in it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/keys/rate_bucket.h"
#include "base/mutex.h"

namespace graft::api {

// 0 = no limit.
struct KeyLimits {
  std::int32_t max_concurrent = 0;
  std::int64_t requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;  // of prompts and answers
};

class KeyUsage {
 public:
  using Clock = RateBucket::Clock;
  struct Refusal {
    std::string message;
    std::int64_t retry_after_s = 1;
  };

  // Counts one request as running, or says which limit it would exceed; then nothing is counted.
  std::optional<Refusal> begin(const KeyLimits& limits, Clock::time_point now)
      GRAFT_EXCLUDES(mutex_);
  void end() GRAFT_EXCLUDES(mutex_);
  // Takes effect at the next begin(): what is running is not cut off.
  void add_tokens(std::int64_t n) { n_new_tokens_.fetch_add(n, std::memory_order_relaxed); }

  std::int32_t n_running() const GRAFT_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::int32_t n_running_ GRAFT_GUARDED_BY(mutex_) = 0;
  RateBucket requests_ GRAFT_GUARDED_BY(mutex_);
  RateBucket tokens_ GRAFT_GUARDED_BY(mutex_);
  std::atomic<std::int64_t> n_new_tokens_{0};
};

class KeyPermit {
 public:
  // Requires: usage->begin() has succeeded. Null: nothing to hold.
  explicit KeyPermit(std::shared_ptr<KeyUsage> usage) : usage_(std::move(usage)) {}
  ~KeyPermit() {
    if (usage_ != nullptr) usage_->end();
  }
  KeyPermit(KeyPermit&&) noexcept = default;
  KeyPermit& operator=(KeyPermit&&) = delete;
  explicit operator bool() const { return usage_ != nullptr; }

 private:
  std::shared_ptr<KeyUsage> usage_;
};

}  // namespace graft::api
