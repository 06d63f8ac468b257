#include "scheduler/generation_service.h"

#include <utility>

namespace graft {

// For services that compute nothing, where one choice costs nothing beside another.
Status GenerationService::submit_group(std::vector<Submission> choices) {
  std::vector<RequestId> accepted;
  for (Submission& choice : choices) {
    const RequestId id = choice.request.id;
    if (Status status = submit(std::move(choice)); !status) {
      for (const RequestId earlier : accepted) cancel(earlier);
      return status;
    }
    accepted.push_back(id);
  }
  return {};
}

}  // namespace graft
