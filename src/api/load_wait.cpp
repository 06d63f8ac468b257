#include "api/load_wait.h"

#include <utility>

#include "api/adapter_errors.h"
#include "api/errors.h"

namespace graft::api {
namespace {

const Error kStopped{ErrorCode::kUnavailable, "The server is shutting down.", {}};

Output whole(HttpResponse response, const std::vector<Header>& headers) {
  Output output;
  output.whole = std::make_unique<HttpResponse>(std::move(response));
  output.whole->headers.insert(output.whole->headers.end(), headers.begin(), headers.end());
  return output;
}

}  // namespace

Error as_missing(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotSupported:
    case ErrorCode::kDataCorrupt: return {ErrorCode::kNotFound, error.message, "model"};
    default: return error;
  }
}

void LoadOutcome::on_loaded(const Loaded& loaded) {
  {
    MutexLock lock(mutex_);
    loaded_ = loaded;
  }
  waker_->wake();
}

std::optional<LoadOutcome::Loaded> LoadOutcome::get() const {
  MutexLock lock(mutex_);
  return loaded_;
}

Output LoadExchange::poll(bool /*idle*/) {
  if (shutting_down_) return whole(adapter_error(kStopped), headers_);
  const auto loaded = outcome_->get();
  if (!loaded) return {};
  if (!*loaded) return whole(adapter_error(loaded->error()), headers_);
  return whole(adapter_success("LoRA adapter '" + name_ + "' added successfully."), headers_);
}

Output ModuleWait::poll(bool /*idle*/) {
  if (shutting_down_) return whole(error_response(kStopped), headers_);
  for (const auto& outcome : outcomes_) {
    const auto loaded = outcome->get();
    if (!loaded) return {};
    if (!*loaded) return whole(error_response(as_missing(loaded->error())), headers_);
  }
  Output output;
  request_.modules_awaited = true;
  output.again = std::make_unique<HttpRequest>(std::move(request_));
  return output;
}

}  // namespace graft::api
