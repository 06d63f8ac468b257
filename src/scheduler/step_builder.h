// StepBuilder: from the policy's chunks and the requests they belong to, the rows and module sets
// of one StepPlan. Requests with equal attachment sets share a set; different ones never do.
// Belongs to the engine thread; keeps its buffers from step to step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grafting/step_plan.h"
#include "scheduler/live_request.h"
#include "scheduler/policy.h"

namespace graft {

class StepBuilder {
 public:
  // The plan is valid until the next call. Which rows are outputs is for the request to say.
  // Requires: every chunk's request runs and has that many pending tokens.
  const StepPlan& build(std::span<const PlannedChunk> chunks,
                        std::span<const std::unique_ptr<LiveRequest>> running);

 private:
  std::int32_t set_of(const LiveRequest& request);

  StepPlan plan_;
  std::unordered_map<std::string_view, std::int32_t> sets_;  // by attachment key
};

}  // namespace graft
