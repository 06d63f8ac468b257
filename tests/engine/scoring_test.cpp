// Prompt scores and embeddings through the loop: equal bits for the same tokens scored, generated,
// in any chunks and company, after preemption; and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "modules/formats/read_adapter.h"
#include "support/request_mix.h"
#include "support/test_files.h"

namespace graft {
namespace {

std::unique_ptr<Model>& shared_model() {
  static std::unique_ptr<Model> model = load_model(source_file("tests/synthetic/counting.gguf"));
  return model;
}

RigOptions small() {
  return {.engine = {.n_ctx = 1024, .max_seqs = 8, .n_batch = 128, .n_threads = 1}};
}

AttachmentSet with_step2() {
  auto adapter =
      read_adapter(source_file("tests/synthetic/adapters/step2"), shared_model()->base());
  auto version = std::make_shared<ModuleVersion>();
  version->name = "step2";
  version->resident = *ResidentAdapter::pack(*adapter, Precision::kFile);
  AttachmentSet set;
  set.attachments.push_back({version, 1.0F, 0});
  return set;
}

class Scoring : public testing::Test {
 protected:
  static GenerationRequest ask_for(const std::string& prompt, std::int32_t max_tokens) {
    static RequestId next_id = 1;
    GenerationRequest request;
    request.id = next_id++;
    request.prompt = *model().vocabulary().tokenize(prompt, {.add_special = false});
    request.sampling.temperature = 0;
    request.sampling.n_logprobs = 2;
    request.stop.max_tokens = max_tokens;
    return request;
  }
  static GenerationRequest score(std::vector<TokenId> prompt, std::int32_t n_top = 2) {
    GenerationRequest request = ask_for("x", 0);
    request.prompt = std::move(prompt);
    request.n_prompt_logprobs = n_top;
    return request;
  }
  static GenerationRequest embed(const std::string& prompt, Pooling pooling) {
    GenerationRequest request = ask_for(prompt, 0);
    request.embedding = pooling;
    return request;
  }
  static const Model& model() { return *shared_model(); }
};

// The bits of one scored or generated token with its two alternatives.
std::vector<float> numbers_of(const TokenLogprob& token, const std::vector<TokenLogprob>& top) {
  std::vector<float> numbers = {token.logprob};
  for (const TokenLogprob& other : top) numbers.push_back(other.logprob);
  return numbers;
}

TEST_F(Scoring, APromptsScoresAreThoseOfGeneratingTheSameTokens) {
  for (const auto& set : {AttachmentSet(), with_step2()}) {
    ServingRig rig(*shared_model(), small());
    std::vector<std::vector<float>> generated;
    GenerationRequest request = ask_for("5", 150);
    std::vector<TokenId> text = request.prompt;
    const auto sink = rig.submit(request, set, [&](const Event& event) {
      if (const auto* token = std::get_if<TokenOutput>(&event)) {
        text.push_back(token->token);
        generated.push_back(numbers_of(*token->logprob, token->top_logprobs));
      }
      return true;
    });
    ASSERT_EQ(sink->wait().n_generated_tokens, 150);

    const Answer scored = rig.ask(score(text), set);
    EXPECT_EQ(scored.end, Answer::End::kLength);
    EXPECT_EQ(scored.n_generated_tokens, 0);
    ASSERT_EQ(scored.prompt.size(), text.size());
    EXPECT_EQ(scored.prompt[0].rank, 0);
    std::string shown;
    for (std::size_t i = 0; i < text.size(); ++i) {
      EXPECT_EQ(scored.prompt[i].token.token, text[i]);
      shown += scored.prompt[i].text;
      if (i == 0) continue;
      EXPECT_EQ(scored.prompt[i].rank, 1) << i;  // generated greedily
      EXPECT_EQ(numbers_of(scored.prompt[i].token, scored.prompt[i].top_logprobs),
                generated[i - 1]);
    }
    EXPECT_EQ(shown.size(), text.size());
  }
}

TEST_F(Scoring, ScoringGoesOnToGenerate) {
  ServingRig rig(*shared_model(), small());
  GenerationRequest request = ask_for("abcx", 100);
  const Answer plain = rig.ask(request);
  request.n_prompt_logprobs = 0;
  const Answer scored = rig.ask(request);
  EXPECT_EQ(scored.text, "yz");
  EXPECT_EQ(scored.logprob_bits, plain.logprob_bits);
  EXPECT_EQ(scored.prompt.size(), 4U);
  EXPECT_TRUE(plain.prompt.empty());
  // A prompt of one token has nothing to score, but is still told.
  request = ask_for("x", 1);
  request.n_prompt_logprobs = 1;
  EXPECT_EQ(rig.ask(request).prompt.size(), 1U);
  EXPECT_EQ(rig.ask(score({5})).prompt.size(), 1U);
}

TEST_F(Scoring, BitsDoNotDependOnChunksRowsAndCompany) {
  const std::string text(301, '7');
  const GenerationRequest request = score(ask_for(text, 0).prompt, 3);
  ServingRig alone(*shared_model(), small());
  const Answer expected = alone.ask(request, with_step2());
  ASSERT_EQ(expected.prompt.size(), text.size());
  for (const std::int32_t n_rows : {1, 7, 64, 128}) {
    RigOptions options = small();
    options.engine.max_reported_rows = n_rows;
    options.engine.n_threads = n_rows == 7 ? 2 : 1;
    options.loop.n_prefill_beside_decode = 16;
    ServingRig rig(*shared_model(), options);
    const auto company = rig.submit(ask_for("5", 60), {});
    const auto other = rig.submit(score(request.prompt, 1), {});
    EXPECT_TRUE(expected.same_as(rig.ask(request, with_step2()))) << n_rows << " rows";
    EXPECT_EQ(company->wait().n_generated_tokens, 60);
    EXPECT_EQ(other->wait().prompt.size(), text.size());
  }
}

TEST_F(Scoring, APreemptedPromptIsReportedOnce) {
  ServingRig alone(*shared_model(), small());
  ServingRig rig(*shared_model(), {.engine = {.n_ctx = 256,
                                              .max_seqs = 8,
                                              .n_batch = 16,
                                              .n_threads = 1,
                                              .max_reported_rows = 5},
                                   .loop = {.n_prefill_beside_decode = 2, .n_headroom_cells = 0}});
  const std::string text(200, 'q');
  for (const GenerationRequest& request :
       {score(ask_for(text, 0).prompt), embed(text, Pooling::kMean)}) {
    const Answer expected = alone.ask(request);
    // 200 tokens, two a step beside one that grows by one a step: they cannot both end in 256
    // cells, and the younger goes. If it came so late that it had to wait: again.
    const auto before = rig.loop().counters().n_preemptions;
    for (int i = 0; i < 100 && rig.loop().counters().n_preemptions == before; ++i) {
      const auto growing = rig.submit(ask_for("5", 240), {});
      const auto younger = rig.submit(request, {});
      EXPECT_TRUE(expected.same_as(younger->wait()));
      EXPECT_EQ(growing->wait().n_generated_tokens, 240);
    }
    EXPECT_GT(rig.loop().counters().n_preemptions, before) << "nothing was preempted";
  }
  rig.stop();
  rig.engine().check_invariants();
  EXPECT_EQ(rig.engine().cells().n_free(), 256);
}

TEST_F(Scoring, EmbeddingsHaveLengthOneAndDependOnTextAndModules) {
  ServingRig rig(*shared_model(), small());
  const auto length = [](const Answer& answer) {
    double square = 0;
    for (const std::uint32_t bits : answer.embedding_bits) {
      square += std::pow(static_cast<double>(std::bit_cast<float>(bits)), 2);
    }
    return std::sqrt(square);
  };
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    const Answer answer = rig.ask(embed("abcd", pooling));
    EXPECT_EQ(answer.end, Answer::End::kLength);
    EXPECT_EQ(answer.embedding_bits.size(),
              static_cast<std::size_t>(rig.engine().n_state_values()));
    EXPECT_NEAR(length(answer), 1, 1e-6);
    EXPECT_TRUE(answer.same_as(rig.ask(embed("abcd", pooling))));
    EXPECT_FALSE(answer.same_as(rig.ask(embed("abce", pooling))));
    EXPECT_FALSE(answer.same_as(rig.ask(embed("abcd", pooling), with_step2())));
  }
  EXPECT_FALSE(
      rig.ask(embed("abcd", Pooling::kMean)).same_as(rig.ask(embed("abcd", Pooling::kLast))));
}

TEST_F(Scoring, WhatCannotBeIsRefused) {
  ServingRig rig(*shared_model(), small());
  const auto expect_refused = [&](const GenerationRequest& request) {
    const Answer answer = rig.ask(request);
    EXPECT_EQ(answer.end, Answer::End::kFailed);
    EXPECT_EQ(answer.error.code, ErrorCode::kInvalidArgument) << answer.error.message;
  };
  expect_refused(score({1, 2, 3}, 21));
  expect_refused(score({1, 2, 3}, -1));
  GenerationRequest request = embed("abc", Pooling::kMean);
  request.stop.max_tokens = 1;
  expect_refused(request);
  request = embed("abc", Pooling::kMean);
  request.n_prompt_logprobs = 1;
  expect_refused(request);
  expect_refused(score(std::vector<TokenId>(1025, 5)));
  // What only computes its prompt may fill the context.
  EXPECT_EQ(rig.ask(score(std::vector<TokenId>(1024, 5), 0)).prompt.size(), 1024U);
}

}  // namespace
}  // namespace graft
