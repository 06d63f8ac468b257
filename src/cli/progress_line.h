// ProgressLine: how far something long has come, on standard error: one line that is written over
// on a terminal, a line at every quarter elsewhere, nothing when it is quick. One thread.
#pragma once

#include <chrono>
#include <string>

namespace graft::cli {

class ProgressLine {
 public:
  explicit ProgressLine(std::string title);
  // Removes a half-written line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `fraction`: 0 .. 1.
  void update(float fraction);

 private:
  const std::string title_;
  const bool is_terminal_;
  const std::chrono::steady_clock::time_point started_;
  int last_percent_ = 0;
};

}  // namespace graft::cli
