// RequestMix: random requests for one model - prompts, lengths, sampling, modules - that are the
// same for the same seed, and the answers they get alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "modules/module_version.h"
#include "support/serving_rig.h"

namespace graft {

struct MixedRequest {
  GenerationRequest request;
  AttachmentSet attachments;
};

struct MixOptions {
  std::uint32_t seed = 1;
  int n_requests = 12;
  std::int32_t max_prompt = 80;
  std::int32_t max_generated = 20;
};

// Requests without a module, with one of `modules`, and with two of them at random scales, in turn;
// greedy and drawn in turn; all report log-probabilities, some of their prompt too. One in eight
// wants an embedding, with each kind of pooling in turn.
std::vector<MixedRequest> make_mix(const Model& model,
                                   const std::vector<std::shared_ptr<const ModuleVersion>>& modules,
                                   const MixOptions& options);

// Each request alone, one after the other.
std::vector<Answer> answer_alone(ServingRig& rig, const std::vector<MixedRequest>& mix);

// All of them, submitted at random moments.
std::vector<Answer> answer_together(ServingRig& rig, const std::vector<MixedRequest>& mix,
                                    std::uint32_t seed);

// Bit for bit, each with its number in the message.
void expect_same(const std::vector<Answer>& expected, const std::vector<Answer>& actual,
                 const std::string& what);

}  // namespace graft
