// GenerationService: how the API hands a validated request to the engine thread. The scheduler's
// loop implements it; tests use a scripted one. Any thread may call it.
#pragma once

#include <memory>

#include "base/result.h"
#include "core/event.h"
#include "core/request.h"
#include "modules/module_version.h"

namespace graft {

struct Submission {
  GenerationRequest request;
  AttachmentSet attachments;         // the leases of the modules it uses
  std::shared_ptr<EventSink> sink;
};

class GenerationService {
 public:
  virtual ~GenerationService() = default;

  // Errors: kResourceExhausted when the queue is full, kUnavailable while draining,
  // kInvalidArgument when the request can never fit. On error the sink is never called.
  virtual Status submit(Submission submission) = 0;

  // The sink then gets Finished{kCancelled}, if the request still runs. Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
};

}  // namespace graft
