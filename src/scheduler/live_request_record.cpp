// What a request says about itself to the counters.
#include <chrono>

#include "base/check.h"
#include "scheduler/live_request.h"

namespace graft {
namespace {

std::int64_t microseconds(LiveRequest::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

std::optional<TokenRecord> LiveRequest::last_token() const {
  if (!made_token_) return std::nullopt;
  if (n_generated_ == 1) return TokenRecord{true, microseconds(last_token_at_ - submitted_at_)};
  return TokenRecord{false, microseconds(last_token_at_ - token_before_at_)};
}

std::optional<LiveRequest::Clock::duration> LiveRequest::prepare_time() const {
  if (!submission_.received_at) return std::nullopt;
  return submitted_at_ - *submission_.received_at;
}

RequestRecord LiveRequest::record() const {
  GRAFT_CHECK(is_over());
  RequestRecord record;
  switch (outcome_) {
    case Outcome::kCancelled: record.outcome = RequestRecord::Outcome::kCancelled; break;
    case Outcome::kFailed: record.outcome = RequestRecord::Outcome::kFailed; break;
    default:
      record.outcome = finish_reason_ == FinishReason::kLength ? RequestRecord::Outcome::kLength
                                                               : RequestRecord::Outcome::kStopped;
  }
  record.was_started = was_started_;
  const Clock::time_point now = Clock::now();
  record.whole_us = microseconds(now - submitted_at_);
  if (const auto time = prepare_time()) record.prepare_us = microseconds(*time);
  record.queue_us = microseconds((was_started_ ? started_at_ : now) - submitted_at_);
  if (n_generated_ > 0) {
    record.prefill_us = microseconds(first_token_at_ - started_at_);
    record.decode_us = microseconds(last_token_at_ - first_token_at_);
  }
  record.n_prompt_tokens = static_cast<std::int64_t>(submission_.request.prompt.size());
  record.n_cached_tokens = n_found_tokens_;
  record.n_generated_tokens = n_generated_;
  return record;
}

}  // namespace graft
