#include "api/keys/key_usage.h"

#include <cmath>

namespace graft::api {
namespace {

KeyUsage::Refusal refusal(const std::string& limit, double wait_s) {
  return {"This key may " + limit + ".",
          std::max(std::int64_t{1}, static_cast<std::int64_t>(std::ceil(wait_s)))};
}

}  // namespace

std::optional<KeyUsage::Refusal> KeyUsage::begin(const KeyLimits& limits, Clock::time_point now) {
  const MutexLock lock(mutex_);
  if (limits.max_concurrent > 0 && n_running_ >= limits.max_concurrent) {
    return refusal("run " + std::to_string(limits.max_concurrent) + " requests at once", 1);
  }
  if (limits.tokens_per_minute > 0) {
    const auto rate = static_cast<double>(limits.tokens_per_minute);
    tokens_.refill(rate, now);
    tokens_.take(static_cast<double>(n_new_tokens_.exchange(0, std::memory_order_relaxed)));
    if (const double wait_s = tokens_.wait_s(rate); wait_s > 0) {
      return refusal("use " + std::to_string(limits.tokens_per_minute) + " tokens a minute",
                     wait_s);
    }
  }
  if (limits.requests_per_minute > 0) {
    const auto rate = static_cast<double>(limits.requests_per_minute);
    requests_.refill(rate, now);
    if (const double wait_s = requests_.wait_s(rate); wait_s > 0) {
      return refusal("make " + std::to_string(limits.requests_per_minute) + " requests a minute",
                     wait_s);
    }
    requests_.take(1);
  }
  ++n_running_;
  return std::nullopt;
}

void KeyUsage::end() {
  const MutexLock lock(mutex_);
  --n_running_;
}

std::int32_t KeyUsage::n_running() const {
  const MutexLock lock(mutex_);
  return n_running_;
}

}  // namespace graft::api
