#include "cli/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace graft::cli {
namespace {

constexpr std::chrono::milliseconds kQuietTime{500};

}  // namespace

ProgressLine::ProgressLine(std::string title)
    : title_(std::move(title)),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      started_(std::chrono::steady_clock::now()) {}

ProgressLine::~ProgressLine() {
  if (is_terminal_ && last_percent_ > 0) std::fputs("\r\033[K", stderr);
}

void ProgressLine::update(float fraction) {
  if (std::chrono::steady_clock::now() - started_ < kQuietTime) return;
  const int percent = std::clamp(static_cast<int>(fraction * 100), 0, 100);
  const int unit = is_terminal_ ? 1 : 25;
  if (percent / unit <= last_percent_ / unit) return;
  last_percent_ = percent;
  std::fprintf(stderr, is_terminal_ ? "\r%s %d%%" : "%s %d%%\n", title_.c_str(), percent);
  std::fflush(stderr);
}

}  // namespace graft::cli
