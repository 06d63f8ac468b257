#include "api/generation_exchange.h"

#include <utility>

#include "api/errors.h"

namespace graft::api {

const Error& stopped_by_shutdown() {
  static const Error stopped{
      ErrorCode::kUnavailable, "The request was stopped: the server shuts down.", {}};
  return stopped;
}

const Error* error_of(const Event& event) {
  if (const auto* failed = std::get_if<Failed>(&event)) return &failed->error;
  const auto* finished = std::get_if<Finished>(&event);
  // A cancellation that no client asked for: the server is going down.
  const bool is_cancelled = finished != nullptr && finished->reason == FinishReason::kCancelled;
  return is_cancelled ? &stopped_by_shutdown() : nullptr;
}

GenerationExchange::GenerationExchange(GenerationService& service,
                                       std::shared_ptr<EventInbox> inbox,
                                       std::vector<RequestId> ids,
                                       std::vector<ChoiceOutput> choices,
                                       std::unique_ptr<AnswerWriter> writer,
                                       std::vector<Header> headers)
    : service_(service),
      inbox_(std::move(inbox)),
      ids_(std::move(ids)),
      headers_(std::move(headers)),
      choices_(std::move(choices)),
      has_ended_(choices_.size(), false),
      writer_(std::move(writer)) {}

GenerationExchange::~GenerationExchange() {
  if (!done_) stop_work();
}

void GenerationExchange::stop_work() {
  done_ = true;
  inbox_->close();
  for (const RequestId id : ids_) service_.cancel(id);
}

void GenerationExchange::abandon() {
  if (!done_) stop_work();
}

Output GenerationExchange::poll(bool idle) {
  Output output;
  if (done_) return output;
  const std::vector<ChoiceEvent> events = inbox_->take();
  if (inbox_->overflowed()) {
    stop_work();
    output.broken = true;
    return output;
  }
  for (const ChoiceEvent& event : events) {
    take_event(output, event);
    if (done_) return output;
  }
  if (shutting_down_) {
    fail(output, stopped_by_shutdown());
  } else if (idle && writer_->streams()) {
    // A long wait in the queue: the client gets its headers, then a comment now and then.
    if (!head_sent_) {
      send_head(output);
    } else if (output.bytes.empty()) {
      writer_->append_ping(output.bytes);
    }
  }
  return output;
}

void GenerationExchange::take_event(Output& output, const ChoiceEvent& event) {
  if (has_ended_[static_cast<std::size_t>(event.choice)]) return;
  if (const Error* error = error_of(event.event)) return fail(output, *error);
  if (writer_->streams() && !head_sent_) send_head(output);
  if (const auto* started = std::get_if<Started>(&event.event)) {
    writer_->append(output.bytes, event.choice, *started);
  } else if (const auto* scored = std::get_if<PromptScored>(&event.event)) {
    writer_->append(output.bytes, event.choice, *scored);
  } else if (const auto* token = std::get_if<TokenOutput>(&event.event)) {
    take_token(output, event.choice, *token);
  } else if (const auto* finished = std::get_if<Finished>(&event.event)) {
    take_end(output, event.choice, *finished);
  }
  if (writer_->complete()) end(output);
}

void GenerationExchange::take_token(Output& output, std::int32_t choice, const TokenOutput& event) {
  const auto index = static_cast<std::size_t>(choice);
  ChoiceOutput& parsed = choices_[index];
  writer_->append(output.bytes, choice, event, parsed.take(event));
  if (!parsed.must_end()) return;
  service_.cancel(ids_[index]);
  take_end(output, choice, parsed.ended_early());
}

void GenerationExchange::take_end(Output& output, std::int32_t choice, const Finished& event) {
  const auto index = static_cast<std::size_t>(choice);
  has_ended_[index] = true;
  writer_->append(output.bytes, choice, event, choices_[index].finish(event));
}

void GenerationExchange::end(Output& output) {
  done_ = true;
  inbox_->close();
  if (writer_->streams()) {
    output.end = true;
    return;
  }
  output.whole = std::make_unique<HttpResponse>();
  output.whole->headers = headers_;
  output.whole->headers.emplace_back("content-type", "application/json");
  output.whole->body = std::exchange(output.bytes, {});
}

void GenerationExchange::fail(Output& output, const Error& error) {
  stop_work();
  const ApiError api_error = to_api_error(error);
  if (head_sent_) {
    writer_->append_error(output.bytes, api_error);
    output.end = true;
    return;
  }
  output.whole = std::make_unique<HttpResponse>(writer_->error_answer(api_error));
  output.whole->headers.insert(output.whole->headers.end(), headers_.begin(), headers_.end());
}

void GenerationExchange::send_head(Output& output) {
  head_sent_ = true;
  output.head = std::make_unique<HttpResponse>();
  output.head->headers = headers_;
  output.head->headers.emplace_back("content-type", "text/event-stream");
  output.head->headers.emplace_back("cache-control", "no-cache");
}

}  // namespace graft::api
