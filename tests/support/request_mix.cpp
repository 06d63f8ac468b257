#include "support/request_mix.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

namespace graft {

namespace {

AttachmentSet choose_modules(const std::vector<std::shared_ptr<const ModuleVersion>>& modules,
                             int number, std::mt19937& random) {
  AttachmentSet set;
  if (modules.empty() || number % 4 == 0) return set;
  const auto scale = [&] { return 0.25F * static_cast<float>(1 + random() % 4); };
  const std::size_t first = random() % modules.size();
  set.attachments.push_back({modules[first], scale(), 0});
  if (number % 4 == 3 && modules.size() > 1) {
    const std::size_t second = (first + 1 + random() % (modules.size() - 1)) % modules.size();
    set.attachments.push_back({modules[second], scale(), 0});
  }
  return set;
}

}  // namespace

std::vector<MixedRequest> make_mix(const Model& model,
                                   const std::vector<std::shared_ptr<const ModuleVersion>>& modules,
                                   const MixOptions& options) {
  std::mt19937 random(options.seed);
  const auto n_vocab = static_cast<std::uint32_t>(model.vocabulary().size());
  std::vector<MixedRequest> mix;
  for (int i = 0; i < options.n_requests; ++i) {
    MixedRequest mixed;
    GenerationRequest& request = mixed.request;
    request.id = options.seed * 1000 + static_cast<RequestId>(i);
    const auto n_prompt = 1 + random() % static_cast<std::uint32_t>(options.max_prompt);
    for (std::uint32_t t = 0; t < n_prompt; ++t) {
      request.prompt.push_back(static_cast<TokenId>(random() % n_vocab));
    }
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    request.sampling.top_p = i % 3 == 0 ? 0.9F : 1.0F;
    request.sampling.repetition_penalty = i % 5 == 0 ? 1.2F : 1.0F;
    request.sampling.seed = static_cast<std::uint32_t>(random());
    request.sampling.n_logprobs = 2;
    request.stop.max_tokens =
        static_cast<std::int32_t>(1 + random() % static_cast<std::uint32_t>(options.max_generated));
    request.stop.ignore_eos = true;
    if (i % 4 == 2) request.n_prompt_logprobs = i % 3;
    if (i % 8 == 5) {
      request.embedding = i % 16 == 5 ? Pooling::kMean : Pooling::kLast;
      request.stop.max_tokens = 0;
    }
    mixed.attachments = choose_modules(modules, i, random);
    mix.push_back(std::move(mixed));
  }
  return mix;
}

std::vector<Answer> answer_alone(ServingRig& rig, const std::vector<MixedRequest>& mix) {
  std::vector<Answer> answers;
  for (const MixedRequest& mixed : mix)
    answers.push_back(rig.ask(mixed.request, mixed.attachments));
  return answers;
}

std::vector<Answer> answer_together(ServingRig& rig, const std::vector<MixedRequest>& mix,
                                    std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (const MixedRequest& mixed : mix) {
    sinks.push_back(rig.submit(mixed.request, mixed.attachments));
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
  }
  std::vector<Answer> answers;
  for (const auto& sink : sinks) answers.push_back(sink->wait());
  return answers;
}

void expect_same(const std::vector<Answer>& expected, const std::vector<Answer>& actual,
                 const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NE(expected[i].end, Answer::End::kFailed) << expected[i].error.message;
    EXPECT_NE(actual[i].end, Answer::End::kFailed) << actual[i].error.message;
    EXPECT_TRUE(expected[i].same_as(actual[i]))
        << what << ": request " << i << " got another answer; " << expected[i].tokens.size()
        << " and " << actual[i].tokens.size() << " tokens, tokens "
        << (expected[i].tokens == actual[i].tokens ? "equal" : "differ");
  }
}

}  // namespace graft
