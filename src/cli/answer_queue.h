// AnswerQueue: the sink of one request of this process. The engine thread puts events in, the
// thread that prints takes them out, each with the moment it came.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "base/queue.h"
#include "core/event.h"

namespace graft::cli {

class AnswerQueue final : public EventSink {
 public:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Event event;
    Clock::time_point at;
  };

  // `capacity`: all events that the request can have.
  explicit AnswerQueue(std::size_t capacity) : entries_(capacity) {}

  bool publish(Event event) override {
    return static_cast<bool>(entries_.push({std::move(event), Clock::now()}));
  }
  // Waits. The last event is Finished or Failed; do not ask for more.
  std::optional<Entry> next() { return entries_.pop(); }

 private:
  Queue<Entry> entries_;
};

}  // namespace graft::cli
