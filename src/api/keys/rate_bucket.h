// RateBucket: what is left of a rate per minute. Holds at most one minute's worth, refills evenly,
// and may go below zero for costs that are known only afterwards. A plain value of one thread; the
// rate is an argument, because it may change between calls.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace graft::api {

class RateBucket {
 public:
  using Clock = std::chrono::steady_clock;

  void refill(double per_minute, Clock::time_point now) {
    if (!last_) {
      balance_ = per_minute;
    } else {
      const std::chrono::duration<double> passed = now - *last_;
      balance_ = std::min(per_minute, balance_ + passed.count() * per_minute / 60);
    }
    last_ = now;
  }

  // Seconds until something can be taken again; 0 = now.
  double wait_s(double per_minute) const {
    return balance_ >= 1 ? 0 : (1 - balance_) * 60 / per_minute;
  }

  void take(double n) { balance_ -= n; }
  double balance() const { return balance_; }

 private:
  double balance_ = 0;
  std::optional<Clock::time_point> last_;
};

}  // namespace graft::api
