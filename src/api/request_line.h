// RequestLine: what the log says about one request, in one line at its end. Filled on the way: the
// service knows who asks and when, the route what was asked for, the sinks of its choices how it
// went. No part of a prompt, unless the operator asked for it.
//
// The strings are written before the work is submitted; the sums are atomics that the engine thread
// adds to, read when the answer has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "core/event.h"

namespace graft::api {

struct RequestLine {
  using Clock = std::chrono::steady_clock;

  Clock::time_point begin;  // the request was complete
  LogLevel level = LogLevel::kInfo;
  std::string request_id;
  std::string trace_id;  // of the client's trace; "" = none
  std::string tenant;    // "" = there are no keys
  std::string method;
  std::string path;  // without the query, which may hold anything
  std::string model;
  std::string modules;  // as in x-graft-modules
  std::string prompt;   // only with --log-prompts
  std::string finish;   // why the answer ended; of the last choice

  std::atomic<std::int64_t> n_prompt_tokens{0};
  std::atomic<std::int64_t> n_cached_tokens{0};
  std::atomic<std::int64_t> n_generated_tokens{0};
  // Of the slowest choice.
  std::atomic<std::int64_t> prepare_us{0};
  std::atomic<std::int64_t> queue_us{0};
  std::atomic<std::int64_t> prefill_us{0};
  std::atomic<std::int64_t> decode_us{0};

  void add(const Finished& finished);
};

// Writes the line; `status` 499 says that the client went before the end.
void log_request(const RequestLine& line, int status);

// Passes events on and adds up what the line wants to know.
class LineSink : public EventSink {
 public:
  LineSink(std::shared_ptr<RequestLine> line, std::shared_ptr<EventSink> sink)
      : line_(std::move(line)), sink_(std::move(sink)) {}
  bool publish(Event event) override;

 private:
  const std::shared_ptr<RequestLine> line_;
  const std::shared_ptr<EventSink> sink_;
};

}  // namespace graft::api
