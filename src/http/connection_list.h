// ConnectionList: the open connections, for the limit on their number and for draining.
// Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"

namespace graft {

class Connection;

class ConnectionList {
 public:
  void add(const std::shared_ptr<Connection>& connection) GRAFT_EXCLUDES(mutex_);
  void remove(const Connection* connection) GRAFT_EXCLUDES(mutex_);
  std::vector<std::shared_ptr<Connection>> all() const GRAFT_EXCLUDES(mutex_);
  std::size_t size() const GRAFT_EXCLUDES(mutex_);
  // False when connections are left after `timeout`.
  bool wait_until_empty(std::chrono::nanoseconds timeout) GRAFT_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::unordered_map<const Connection*, std::weak_ptr<Connection>> open_ GRAFT_GUARDED_BY(mutex_);
};

}  // namespace graft
