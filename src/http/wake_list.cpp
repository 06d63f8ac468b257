#include "http/wake_list.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "http/connection.h"

namespace graft {

void ConnectionWaker::wake() {
  if (!listed_.exchange(true)) list_->add(shared_from_this());
}

void WakeList::add(std::shared_ptr<ConnectionWaker> waker) {
  MutexLock lock(mutex_);
  if (closed_) return;
  waiting_.push_back(std::move(waker));
  if (waiting_.size() > 1) return;
  // Under the lock, so that close() cannot pass while the io_context is in use. post() only queues.
  boost::asio::post(io_, [self = shared_from_this()] { self->deliver(); });
}

void WakeList::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  waiting_.clear();
}

void WakeList::deliver() {
  std::vector<std::shared_ptr<ConnectionWaker>> waiting;
  {
    MutexLock lock(mutex_);
    waiting.swap(waiting_);
  }
  for (const auto& waker : waiting) {
    // Cleared first: an event that comes from now on wakes again.
    waker->listed_.store(false);
    if (const auto connection = waker->connection_.lock()) connection->on_wake();
  }
}

}  // namespace graft
