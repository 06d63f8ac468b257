// run_load(): sends many requests to one HTTP/1.1 server and notes when the pieces of each streamed
// answer arrive. One thread, the caller's; it must cost far less than what it measures.
//
// Closed loop: `n_streams` connections, each sends its next request as soon as the last answer has
// ended. Open loop (`due` is not empty): every request has its own moment and takes a free
// connection or a new one, whatever the server's state; beyond `n_streams` connections requests
// wait, and their latency counts from the moment at which they were due.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace graft {

using LoadClock = std::chrono::steady_clock;

struct LoadTarget {
  std::string host;
  std::uint16_t port = 80;
  std::string path;  // of every request
  std::vector<std::pair<std::string, std::string>> headers;
};

struct LoadPlan {
  std::size_t n_requests = 0;
  std::function<std::string(std::size_t)> make_body;  // JSON of request i
  std::vector<std::chrono::microseconds> due;         // since the beginning, ascending; or empty
  std::size_t n_streams = 1;                          // most connections
  std::chrono::milliseconds timeout{300'000};         // of one request
  bool (*stop_requested)() = nullptr;                 // asked several times a second
};

// One request and its answer.
struct LoadAnswer {
  LoadClock::time_point due;  // of a closed loop: when it was sent
  LoadClock::time_point end;
  int status = 0;       // 0 = no answer
  std::string failure;  // "" = a complete stream
  std::vector<LoadClock::time_point> text_times;
  std::string usage_event;  // JSON, or ""
};

struct LoadRecord {
  LoadClock::time_point begin;
  LoadClock::time_point end;
  std::vector<LoadAnswer> answers;  // of the requests that were sent, in order
  bool stopped = false;
};

// Errors: kUnavailable when the host has no address. A server that does not answer shows in the
// answers. Requires: make_body, n_requests and n_streams > 0; due.size() is 0 or n_requests.
Result<LoadRecord> run_load(const LoadTarget& target, const LoadPlan& plan);

}  // namespace graft
