#include "http/answer_job.h"

#include <exception>
#include <string>
#include <utility>

#include "api/errors.h"
#include "base/log.h"

namespace graft {

api::Answer answer_or_error(api::Service& service, const api::HttpRequest& request,
                            const std::shared_ptr<api::Waker>& waker) noexcept {
  try {
    return service.answer(request, waker);
  } catch (const std::exception& error) {
    log_error(std::string("a request failed: ") + error.what());
    return api::error_response(internal_error("The request could not be processed."));
  }
}

AnswerJob::AnswerJob(api::Service& service, std::shared_ptr<api::Waker> waker,
                     api::HttpRequest request, Done done)
    : service_(service),
      waker_(std::move(waker)),
      request_(std::move(request)),
      done_(std::move(done)) {}

void AnswerJob::run() noexcept {
  api::Answer answer = answer_or_error(service_, request_, waker_);
  // The body's memory goes here, not on the io thread.
  request_ = {};
  std::exchange(done_, nullptr)(std::move(answer));
}

}  // namespace graft
