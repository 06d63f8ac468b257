// GenerationExchange: one answer in the making. Takes the events of its choices from the inbox and
// has its writer turn them into bytes; cancels the work when the client goes, when a choice fails,
// and when the server stops. A choice whose text cannot be parsed any further ends alone. Used by
// one strand (see exchange.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/answer_writer.h"
#include "api/choice_output.h"
#include "api/event_inbox.h"
#include "api/exchange.h"
#include "scheduler/generation_service.h"

namespace graft::api {

// What an answer ends with when the server stops.
const Error& stopped_by_shutdown();
// The error that an event ends a whole answer with; null when it does not.
const Error* error_of(const Event& event);

class GenerationExchange : public Exchange {
 public:
  // `ids` are the submitted requests, one per choice, as are `choices`. `service` outlives the
  // exchange.
  GenerationExchange(GenerationService& service, std::shared_ptr<EventInbox> inbox,
                     std::vector<RequestId> ids, std::vector<ChoiceOutput> choices,
                     std::unique_ptr<AnswerWriter> writer, std::vector<Header> headers);
  ~GenerationExchange() override;
  GenerationExchange(const GenerationExchange&) = delete;
  GenerationExchange& operator=(const GenerationExchange&) = delete;

  Output poll(bool idle) override;
  void abandon() override;
  void shut_down() override { shutting_down_ = true; }

 private:
  void take_event(Output& output, const ChoiceEvent& event);
  void take_token(Output& output, std::int32_t choice, const TokenOutput& event);
  void take_end(Output& output, std::int32_t choice, const Finished& event);
  void end(Output& output);
  void fail(Output& output, const Error& error);
  void send_head(Output& output);
  void stop_work();

  GenerationService& service_;
  const std::shared_ptr<EventInbox> inbox_;
  const std::vector<RequestId> ids_;
  const std::vector<Header> headers_;
  std::vector<ChoiceOutput> choices_;
  std::vector<bool> has_ended_;  // per choice; its later events are nobody's
  const std::unique_ptr<AnswerWriter> writer_;
  bool head_sent_ = false;
  bool done_ = false;
  bool shutting_down_ = false;
};

}  // namespace graft::api
