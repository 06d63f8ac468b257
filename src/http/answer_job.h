// AnswerJob: one request, answered on the prepare pool.
#pragma once

#include <functional>
#include <memory>

#include "api/exchange.h"
#include "api/service.h"
#include "http/prepare_pool.h"

namespace graft {

// Never throws. What a route throws the service itself answers; here ends what it could not, for
// want of memory.
api::Answer answer_or_error(api::Service& service, const api::HttpRequest& request,
                            const std::shared_ptr<api::Waker>& waker) noexcept;

class AnswerJob : public PrepareJob {
 public:
  using Done = std::function<void(api::Answer)>;
  // `service` outlives the job. `done` is called once, on the pool's thread.
  AnswerJob(api::Service& service, std::shared_ptr<api::Waker> waker, api::HttpRequest request,
            Done done);
  void run() noexcept override;

 private:
  api::Service& service_;
  const std::shared_ptr<api::Waker> waker_;
  api::HttpRequest request_;
  Done done_;
};

}  // namespace graft
