#include "chaos/answers_alone.h"

#include <gtest/gtest.h>

#include <bit>

namespace graft {
namespace {

RigOptions one_at_a_time() {
  RigOptions options = {.engine = {.n_ctx = 512, .max_seqs = 1, .n_batch = 512, .n_threads = 1}};
  options.loop.prefix_cache.enabled = false;
  return options;
}

std::string key_of(const std::vector<TokenId>& prompt, const std::vector<HeldModule>& held) {
  std::string key;
  for (const TokenId token : prompt) key += std::to_string(token) + ' ';
  for (const HeldModule& module : held) {
    key += module.digest + ' ' + std::to_string(std::bit_cast<std::uint32_t>(module.scale)) + ' ';
  }
  return key;
}

}  // namespace

AnswersAlone::AnswersAlone(Model& model, const ModuleContents& contents)
    : contents_(contents), rig_(model, one_at_a_time()) {}

const Answer& AnswersAlone::answer(const GenerationRequest& request,
                                   const std::vector<HeldModule>& held, std::int32_t n_tokens) {
  Known& known = known_[key_of(request.prompt, held)];
  if (known.n_tokens >= n_tokens) return known.answer;
  GenerationRequest alone = request;
  alone.stop.max_tokens = n_tokens;
  known = {rig_.ask(alone, attachments(held)), n_tokens};
  ++n_computed_;
  return known.answer;
}

AttachmentSet AnswersAlone::attachments(const std::vector<HeldModule>& held) const {
  AttachmentSet set;
  for (const HeldModule& module : held) {
    auto version = contents_.find(module.digest);
    EXPECT_NE(version, nullptr) << "nobody wrote content " << module.digest;
    if (version != nullptr) set.attachments.push_back({std::move(version), module.scale, 0});
  }
  return set;
}

}  // namespace graft
