// GenerationService: the seam between those who ask for text (api/, cli/) and the loop that makes
// it. Every function may be called by any thread and returns at once.
//
// The sink of an accepted submission gets its events on the engine thread, in the order that
// core/event.h states. The attachments inside a submission are its lease on the module versions.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/event.h"
#include "core/request.h"
#include "metrics/serving_counters.h"
#include "modules/module_version.h"
#include "text/answer_format.h"
#include "text/constraint.h"

namespace graft {

struct Submission {
  GenerationRequest request;
  AttachmentSet attachments;
  std::shared_ptr<EventSink> sink;
  std::string tenant = {};  // requests of different tenants share no cached prompts
  std::shared_ptr<const Constraint> constraint = nullptr;  // what the answer must look like
  // Tries a module before it is announced: admitted before others, whatever the queue's limit, and
  // counted nowhere.
  bool is_trial = false;
  // The constraint has seen this text before the answer begins; or, with triggers, it starts where
  // the first of them completes, and until then the answer is free.
  std::string constraint_prefix = {};
  std::vector<GrammarTrigger> constraint_triggers = {};
  // When the client's request was complete, for the time that preparing it takes.
  std::optional<std::chrono::steady_clock::time_point> received_at = {};
};

class GenerationService {
 public:
  virtual ~GenerationService() = default;
  // kResourceExhausted when the queue is full, kUnavailable when draining. After an error the sink
  // is never called.
  virtual Status submit(Submission submission) = 0;
  // The choices of one prompt (`n` > 1): equal prompts, attachments and cache rules. They are
  // accepted all or none, admitted together, and their prompt is computed once. Not empty.
  virtual Status submit_group(std::vector<Submission> choices);
  // The sink then gets Finished{kCancelled}. Unknown and finished ids are ignored.
  virtual void cancel(RequestId id) = 0;
  // False while the engine fails whole steps.
  virtual bool healthy() const = 0;
  // How the engine stands, as it last published it.
  virtual ServingSnapshot counters() const = 0;
};

}  // namespace graft
