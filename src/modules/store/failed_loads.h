// FailedLoads: what could not be loaded a short while ago, so that whoever asks again and again for
// the same broken file costs a look at the directory and not a load. Changed files are another
// matter: the signature is part of the key. Bounded; the oldest goes first. Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>

#include "base/result.h"

namespace graft {

class FailedLoads {
 public:
  using Clock = std::chrono::steady_clock;

  explicit FailedLoads(std::chrono::milliseconds memory) : memory_(memory) {}

  void add(const std::string& path, const std::string& signature, const Error& error,
           Clock::time_point now);
  // Null when nothing is remembered. Valid until the next add().
  const Error* find(const std::string& path, const std::string& signature, Clock::time_point now);

 private:
  static constexpr std::size_t kMaxEntries = 256;
  struct Entry {
    std::string path;
    std::string signature;
    Error error;
    Clock::time_point until;
  };

  const std::chrono::milliseconds memory_;
  std::deque<Entry> entries_;  // oldest first
};

}  // namespace graft
