// IdSource: identifiers that no two answers share: request numbers for the engine, and random text
// for clients. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <string>

#include "base/mutex.h"
#include "core/request.h"

namespace graft::api {

class IdSource {
 public:
  IdSource();
  RequestId next_number() { return next_number_.fetch_add(1, std::memory_order_relaxed); }
  // `prefix` and 24 hexadecimal digits.
  std::string next_text(const std::string& prefix) GRAFT_EXCLUDES(mutex_);

 private:
  std::atomic<RequestId> next_number_{1};
  Mutex mutex_;
  std::mt19937_64 random_ GRAFT_GUARDED_BY(mutex_);
};

}  // namespace graft::api
