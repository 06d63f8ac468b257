#include "api/event_inbox.h"

#include <variant>

namespace graft::api {
namespace {

bool is_last(const Event& event) {
  return std::holds_alternative<Finished>(event) || std::holds_alternative<Failed>(event);
}

std::size_t text_bytes(const Event& event) {
  constexpr std::size_t kLogprobBytes = 100;  // about what one becomes as JSON
  if (const auto* scored = std::get_if<PromptScored>(&event)) {
    std::size_t n = 0;
    for (const PromptToken& one : scored->tokens) n += 1 + one.top_logprobs.size();
    return n * kLogprobBytes;
  }
  const auto* token = std::get_if<TokenOutput>(&event);
  if (token == nullptr) return 0;
  return token->text.size() +
         kLogprobBytes * (token->top_logprobs.size() + (token->logprob ? 1U : 0U));
}

}  // namespace

bool EventInbox::push(std::int32_t choice, Event event) {
  const bool wake = limits_.wake_on_tokens || is_last(event);
  const std::size_t bytes = text_bytes(event);
  bool accepted = true;
  {
    MutexLock lock(mutex_);
    if (closed_) return false;
    // The end of a choice always fits; it is the last event that comes.
    if (limits_.wake_on_tokens && !is_last(event) &&
        (events_.size() >= limits_.max_events || n_bytes_ + bytes > limits_.max_bytes)) {
      overflowed_ = true;
      closed_ = true;
      accepted = false;
    } else {
      events_.push_back({choice, std::move(event)});
      n_bytes_ += bytes;
    }
  }
  if (wake) waker_->wake();
  return accepted;
}

std::vector<ChoiceEvent> EventInbox::take() {
  MutexLock lock(mutex_);
  n_bytes_ = 0;
  return std::exchange(events_, {});
}

bool EventInbox::overflowed() const {
  MutexLock lock(mutex_);
  return overflowed_;
}

void EventInbox::close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

}  // namespace graft::api
