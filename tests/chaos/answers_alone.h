// AnswersAlone: what a request gets from an engine of its own where nothing else runs, nothing is
// cached and nothing is loaded. Remembers answers, at their longest. One thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "chaos/module_contents.h"
#include "support/serving_rig.h"

namespace graft {

// A module by its content.
struct HeldModule {
  std::string digest;
  float scale = 1;
};

class AnswersAlone {
 public:
  // All outlive it.
  AnswersAlone(Model& model, const ModuleContents& contents);

  // At least `n_tokens` tokens, unless the answer ends before. Fails the test for a digest that is
  // no content's. Valid until the next call.
  const Answer& answer(const GenerationRequest& request, const std::vector<HeldModule>& held,
                       std::int32_t n_tokens);
  std::size_t n_computed() const { return n_computed_; }

 private:
  struct Known {
    Answer answer;
    std::int32_t n_tokens = 0;  // that it was computed for
  };

  AttachmentSet attachments(const std::vector<HeldModule>& held) const;

  const ModuleContents& contents_;
  ServingRig rig_;
  std::map<std::string, Known> known_;
  std::size_t n_computed_ = 0;
};

}  // namespace graft
