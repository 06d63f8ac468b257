// EventScanner: what a load generator must know of a streamed answer, read off the bytes as they
// come: when each piece of text arrived, the usage object, an error, and whether the end was
// announced. It looks for names in the events instead of parsing JSON: quotes inside a JSON string
// are escaped, so `"text":"` is never part of a text. Bounded: one event of 1 MiB at most.
// Used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace graft {

class EventScanner {
 public:
  using Clock = std::chrono::steady_clock;

  // The bytes of the next feed() arrived at `now`.
  void set_time(Clock::time_point now) { now_ = now; }
  void feed(std::string_view bytes);
  void reserve(std::size_t n_tokens) { text_times_.reserve(n_tokens); }

  // One per event with a text that is not empty, a tool call or reasoning.
  const std::vector<Clock::time_point>& text_times() const { return text_times_; }
  // The last event with a usage object, whole; empty when none came.
  const std::string& usage_event() const { return usage_event_; }
  // The first event with an error, whole; empty when none came.
  const std::string& error_event() const { return error_event_; }
  // [DONE] has come.
  bool done() const { return done_; }
  // The first kilobyte of the body, for answers that are no stream.
  const std::string& beginning() const { return beginning_; }

 private:
  void take_line(std::string_view line);

  Clock::time_point now_;
  std::string line_;  // the beginning of a line whose end has not come
  std::vector<Clock::time_point> text_times_;
  std::string usage_event_;
  std::string error_event_;
  std::string beginning_;
  bool done_ = false;
};

}  // namespace graft
