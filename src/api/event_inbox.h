// EventInbox: where the engine thread leaves the events of all choices of one answer, and the
// connection's strand takes them. Bounded for streams: when a client reads too slowly the inbox
// overflows, the engine stops that work and the connection is reset.
//
// Thread-safe. push() runs on the engine thread and never waits for more than the short lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "api/exchange.h"
#include "base/mutex.h"
#include "core/event.h"

namespace graft::api {

struct ChoiceEvent {
  std::int32_t choice = 0;
  Event event;
};

struct InboxLimits {
  std::size_t max_events = 1000;
  std::size_t max_bytes = std::size_t{256} << 10;  // of text
  bool wake_on_tokens = true;  // false: only the end of a choice wakes the reader, no limits
};

class EventInbox {
 public:
  EventInbox(const InboxLimits& limits, std::shared_ptr<Waker> waker)
      : limits_(limits), waker_(std::move(waker)) {}

  // False when the inbox is closed or full: the engine then cancels the request.
  bool push(std::int32_t choice, Event event) GRAFT_EXCLUDES(mutex_);
  std::vector<ChoiceEvent> take() GRAFT_EXCLUDES(mutex_);
  bool overflowed() const GRAFT_EXCLUDES(mutex_);
  // From now on push() returns false.
  void close() GRAFT_EXCLUDES(mutex_);

 private:
  const InboxLimits limits_;
  const std::shared_ptr<Waker> waker_;
  mutable Mutex mutex_;
  std::vector<ChoiceEvent> events_ GRAFT_GUARDED_BY(mutex_);
  std::size_t n_bytes_ GRAFT_GUARDED_BY(mutex_) = 0;
  bool closed_ GRAFT_GUARDED_BY(mutex_) = false;
  bool overflowed_ GRAFT_GUARDED_BY(mutex_) = false;
};

// The sink of one choice.
class ChoiceSink : public EventSink {
 public:
  ChoiceSink(std::shared_ptr<EventInbox> inbox, std::int32_t choice)
      : inbox_(std::move(inbox)), choice_(choice) {}
  bool publish(Event event) override { return inbox_->push(choice_, std::move(event)); }

 private:
  const std::shared_ptr<EventInbox> inbox_;
  const std::int32_t choice_;
};

}  // namespace graft::api
