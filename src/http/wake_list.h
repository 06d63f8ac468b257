// WakeList: brings the engine thread's "there is more for this connection" to the io threads. All
// wake-ups between two turns of an io thread share one post, so a step that publishes to 32 streams
// wakes it once.
//
// wake() comes from any thread, at any time, also after the connection or the server has gone.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <vector>

#include "api/exchange.h"
#include "base/mutex.h"

namespace graft {

class Connection;
class ConnectionWaker;

class WakeList : public std::enable_shared_from_this<WakeList> {
 public:
  explicit WakeList(boost::asio::io_context& io) : io_(io) {}

  void add(std::shared_ptr<ConnectionWaker> waker) GRAFT_EXCLUDES(mutex_);
  // Requires: called before the io_context goes.
  void close() GRAFT_EXCLUDES(mutex_);

 private:
  void deliver() GRAFT_EXCLUDES(mutex_);

  boost::asio::io_context& io_;
  Mutex mutex_;
  std::vector<std::shared_ptr<ConnectionWaker>> waiting_ GRAFT_GUARDED_BY(mutex_);
  bool closed_ GRAFT_GUARDED_BY(mutex_) = false;
};

class ConnectionWaker : public api::Waker, public std::enable_shared_from_this<ConnectionWaker> {
 public:
  ConnectionWaker(std::shared_ptr<WakeList> list, std::weak_ptr<Connection> connection)
      : list_(std::move(list)), connection_(std::move(connection)) {}

  void wake() override;

 private:
  friend class WakeList;
  const std::shared_ptr<WakeList> list_;
  const std::weak_ptr<Connection> connection_;
  std::atomic<bool> listed_{false};
};

}  // namespace graft
