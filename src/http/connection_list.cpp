#include "http/connection_list.h"

namespace graft {

void ConnectionList::add(const std::shared_ptr<Connection>& connection) {
  MutexLock lock(mutex_);
  open_.emplace(connection.get(), connection);
}

void ConnectionList::remove(const Connection* connection) {
  {
    MutexLock lock(mutex_);
    open_.erase(connection);
  }
  changed_.notify_all();
}

std::vector<std::shared_ptr<Connection>> ConnectionList::all() const {
  std::vector<std::shared_ptr<Connection>> connections;
  MutexLock lock(mutex_);
  for (const auto& [key, weak] : open_) {
    if (auto connection = weak.lock()) connections.push_back(std::move(connection));
  }
  return connections;
}

std::size_t ConnectionList::size() const {
  MutexLock lock(mutex_);
  return open_.size();
}

bool ConnectionList::wait_until_empty(std::chrono::nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  while (!open_.empty()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) return false;
    changed_.wait_for(mutex_, left);
  }
  return true;
}

}  // namespace graft
