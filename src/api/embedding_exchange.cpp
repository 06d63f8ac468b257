#include "api/embedding_exchange.h"

#include <utility>

#include "api/errors.h"
#include "api/generation_exchange.h"

namespace graft::api {

EmbeddingExchange::EmbeddingExchange(Service& service, std::shared_ptr<EventInbox> inbox,
                                     EmbeddingWork work, EmbeddingShape shape,
                                     std::vector<Header> headers)
    : service_(service),
      inbox_(std::move(inbox)),
      work_(std::move(work)),
      headers_(std::move(headers)),
      answer_(std::move(shape)) {}

EmbeddingExchange::~EmbeddingExchange() { stop_work(); }

void EmbeddingExchange::stop_work() {
  if (std::exchange(done_, true)) return;
  inbox_->close();
  for (const std::size_t input : running_) service_.parts().generation.cancel(ids_[input]);
}

Status EmbeddingExchange::start() {
  Status started = submit_more();
  if (!started) stop_work();
  return started;
}

Status EmbeddingExchange::submit_more() {
  const auto max_running = static_cast<std::size_t>(service_.parts().facts.max_choices);
  while (running_.size() < max_running && ids_.size() < work_.inputs.size()) {
    Status submitted = submit_next();
    if (submitted) continue;
    // A full queue has room again when one of ours has ended.
    const bool is_full = submitted.error().code == ErrorCode::kResourceExhausted;
    if (is_full && !running_.empty()) return {};
    return submitted;
  }
  return {};
}

Status EmbeddingExchange::submit_next() {
  const std::size_t input = ids_.size();
  Submission submission;
  submission.request.id = service_.ids().next_number();
  submission.request.prompt = work_.inputs[input];
  submission.request.stop.max_tokens = 0;
  submission.request.embedding = service_.parts().facts.pooling;
  submission.request.prefix_cache = work_.prefix_cache;
  submission.attachments = work_.attachments;
  submission.sink = std::make_shared<LineSink>(
      work_.line, std::make_shared<ChoiceSink>(inbox_, static_cast<std::int32_t>(input)));
  const RequestId id = submission.request.id;
  GRAFT_RETURN_IF_ERROR(service_.submit(work_.caller, std::move(submission)));
  ids_.push_back(id);
  running_.insert(input);
  return {};
}

Output EmbeddingExchange::poll(bool /*idle*/) {
  Output output;
  if (done_) return output;
  Status status;
  for (const ChoiceEvent& event : inbox_->take()) {
    status = take(event);
    if (!status) break;
  }
  if (status) status = submit_more();
  if (status && shutting_down_) status = stopped_by_shutdown();
  if (!status) {
    output.whole = std::make_unique<HttpResponse>(failed(status.error()));
  } else if (answer_.complete() && running_.empty()) {  // also what the log counts has come
    done_ = true;
    output.whole = std::make_unique<HttpResponse>();
    output.whole->headers = headers_;
    output.whole->headers.emplace_back("content-type", "application/json");
    output.whole->body = answer_.body();
  }
  return output;
}

Status EmbeddingExchange::take(const ChoiceEvent& event) {
  const auto input = static_cast<std::size_t>(event.choice);
  if (const Error* error = error_of(event.event)) {
    running_.erase(input);
    return *error;
  }
  if (const auto* embedded = std::get_if<Embedded>(&event.event)) {
    answer_.add(input, embedded->values);
  } else if (std::holds_alternative<Finished>(event.event)) {
    running_.erase(input);
  }
  return {};
}

HttpResponse EmbeddingExchange::failed(const Error& error) {
  stop_work();
  HttpResponse response = error_response(error);
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  return response;
}

}  // namespace graft::api
