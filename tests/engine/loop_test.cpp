// The loop on the counting model, whose answers are known: what each request gets, limits, cancels,
// failures that stay alone, shutting down, and thousands of modules coming and going.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "modules/formats/read_adapter.h"
#include "support/random_adapter.h"
#include "support/request_mix.h"
#include "support/test_files.h"

namespace graft {
namespace {

class LoopTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = load_model(source_file("tests/synthetic/counting.gguf")).release();
  }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }

  static std::shared_ptr<const ModuleVersion> module(const std::string& name) {
    auto adapter = read_adapter(source_file("tests/synthetic/adapters/" + name), model_->base());
    EXPECT_TRUE(adapter) << adapter.error().message;
    auto resident = ResidentAdapter::pack(*adapter, Precision::kFile);
    EXPECT_TRUE(resident) << resident.error().message;
    auto version = std::make_shared<ModuleVersion>();
    version->name = name;
    version->resident = *resident;
    return version;
  }
  static AttachmentSet with(const std::vector<std::shared_ptr<const ModuleVersion>>& modules,
                            float scale = 1) {
    AttachmentSet set;
    for (const auto& module : modules) set.attachments.push_back({module, scale, 0});
    return set;
  }

  static GenerationRequest ask_for(const std::string& prompt, std::int32_t max_tokens = 100) {
    GenerationRequest request;
    static RequestId next_id = 1;
    request.id = next_id++;
    auto tokens = model_->vocabulary().tokenize(prompt, {.add_special = false});
    EXPECT_TRUE(tokens);
    request.prompt = *tokens;
    request.sampling.temperature = 0;
    request.stop.max_tokens = max_tokens;
    return request;
  }

  static RigOptions small() {
    return {.engine = {.n_ctx = 1024, .max_seqs = 8, .n_batch = 128, .n_threads = 1}};
  }

  static Model* model_;
};

Model* LoopTest::model_ = nullptr;

TEST_F(LoopTest, EveryRequestGetsItsOwnModulesInOneBatch) {
  ServingRig rig(*model_, small());
  const auto step2 = module("step2");
  const auto back = module("back");
  const auto upper = module("upper");
  const auto base = rig.submit(ask_for("d"), {});
  const auto stepping = rig.submit(ask_for("d"), with({step2}));
  const auto backwards = rig.submit(ask_for("d"), with({back}));
  const auto both = rig.submit(ask_for("d"), with({step2, upper}));
  EXPECT_EQ(base->wait().text, "efghijklmnopqrstuvwxyz");
  EXPECT_EQ(stepping->wait().text, "fhjlnprtvxz");
  EXPECT_EQ(backwards->wait().text, "cba");
  EXPECT_EQ(both->wait().text, "FHJLNPRTVXZ");
  EXPECT_EQ(base->wait().end, Answer::End::kStop);
}

TEST_F(LoopTest, StopRules) {
  ServingRig rig(*model_, small());
  const Answer limited = rig.ask(ask_for("5", 7));
  EXPECT_EQ(limited.text, "6789012");
  EXPECT_EQ(limited.end, Answer::End::kLength);
  EXPECT_EQ(limited.n_generated_tokens, 7);

  GenerationRequest request = ask_for("5");
  request.stop.strings = {"901"};
  const Answer stopped = rig.ask(request);
  EXPECT_EQ(stopped.text, "678");
  EXPECT_EQ(stopped.end, Answer::End::kStop);

  request = ask_for("w");
  request.stop.token_ids = {ask_for("y").prompt[0]};
  EXPECT_EQ(rig.ask(request).text, "x");
  request = ask_for("y", 3);
  request.stop.ignore_eos = true;
  const Answer going_on = rig.ask(request);
  EXPECT_EQ(going_on.n_generated_tokens, 3);
  EXPECT_EQ(going_on.end, Answer::End::kLength);
  request = ask_for("y");
  request.stop.min_tokens = 4;
  EXPECT_GE(rig.ask(request).n_generated_tokens, 4);
}

TEST_F(LoopTest, WithoutAnswerThePromptAloneIsComputed) {
  ServingRig rig(*model_, small());
  const Answer answer = rig.ask(ask_for("abcd", 0));
  EXPECT_EQ(answer.end, Answer::End::kLength);
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(answer.n_prompt_tokens, 4);
  EXPECT_EQ(answer.n_generated_tokens, 0);
  EXPECT_EQ(rig.loop().counters().n_generated_tokens, 0);
}

TEST_F(LoopTest, StopStringsCanBeKeptAndControlTokensShown) {
  ServingRig rig(*model_, small());
  GenerationRequest request = ask_for("5");
  request.stop.strings = {"901"};
  request.stop.keeps_string = true;
  EXPECT_EQ(rig.ask(request).text, "678901");

  request = ask_for("y", 2);
  const auto control = model_->vocabulary().tokenize("<|im_start|>", {.parse_special = true});
  ASSERT_TRUE(control);
  request.sampling.allowed_tokens = {control->back()};
  EXPECT_EQ(rig.ask(request).text, "");
  request.shows_special = true;
  EXPECT_EQ(rig.ask(request).text, "<|im_start|><|im_start|>");
}

TEST_F(LoopTest, BannedSequencesAreLeftOut) {
  ServingRig rig(*model_, small());
  GenerationRequest request = ask_for("5", 3);
  request.sampling.banned_sequences = {ask_for("6").prompt};
  EXPECT_NE(rig.ask(request).text.substr(0, 1), "6");
  // "78" may not come, but "7" may: the answer takes another way behind it.
  request = ask_for("5", 3);
  request.sampling.banned_sequences = {ask_for("78").prompt};
  const std::string text = rig.ask(request).text;
  EXPECT_EQ(text.substr(0, 2), "67");
  EXPECT_NE(text, "678");
  request.sampling.banned_sequences = {{}};
  EXPECT_FALSE(rig.loop().submit({request, {}, nullptr}));
}

TEST_F(LoopTest, TheContextEndsALongAnswer) {
  ServingRig rig(*model_, {.engine = {.n_ctx = 256, .max_seqs = 2, .n_batch = 64, .n_threads = 1}});
  GenerationRequest request = ask_for("5", -1);
  const Answer answer = rig.ask(request);
  EXPECT_EQ(answer.end, Answer::End::kLength);
  EXPECT_EQ(answer.n_generated_tokens + answer.n_prompt_tokens, 256);
}

TEST_F(LoopTest, WhatCanNeverRunIsRefusedAtOnce) {
  ServingRig rig(*model_, small());
  const auto expect_refused = [&](GenerationRequest request, AttachmentSet set = {}) {
    const Answer answer = rig.ask(std::move(request), std::move(set));
    EXPECT_EQ(answer.end, Answer::End::kFailed);
    EXPECT_EQ(answer.error.code, ErrorCode::kInvalidArgument) << answer.error.message;
    EXPECT_EQ(answer.n_prompt_tokens, 0);
  };
  expect_refused(ask_for(std::string(1024, 'a')));
  GenerationRequest request = ask_for("a");
  request.prompt = {};
  expect_refused(request);
  request.prompt = {-1};
  expect_refused(request);
  request.prompt = {model_->vocabulary().size()};
  expect_refused(request);
  request = ask_for("a");
  request.stop.token_ids = {std::numeric_limits<TokenId>::max()};
  expect_refused(request);
  expect_refused(ask_for("a", -2));
  request = ask_for("a");
  request.sampling.logit_bias = {{model_->vocabulary().size(), 1.0F}};
  expect_refused(request);
  request = ask_for("a");
  request.sampling.temperature = std::nanf("");
  expect_refused(request);
  expect_refused(ask_for("a"), with({module("step2")}, std::numeric_limits<float>::infinity()));
  expect_refused(ask_for("a"), with({nullptr}));
  EXPECT_EQ(rig.ask(ask_for("x")).text, "yz");
}

TEST_F(LoopTest, AModuleOfAnotherModelIsRefused) {
  ServingRig rig(*model_, small());
  BaseModel other = model_->base();
  for (auto& [name, tensor] : other.tensors) tensor.ne[0] *= 2;
  const Answer answer =
      rig.ask(ask_for("x"), with({make_random_module(other, {.projections = {"attn_q"}})}));
  EXPECT_EQ(answer.end, Answer::End::kFailed);
  EXPECT_NE(answer.error.message.find("attn_q"), std::string::npos) << answer.error.message;
}

TEST_F(LoopTest, CancelledRequestsEndAndFreeTheirCells) {
  ServingRig rig(*model_, small());
  GenerationRequest request = ask_for("5", -1);
  const RequestId id = request.id;
  std::atomic<int> n_events{0};
  const auto sink = rig.submit(request, {}, [&](const Event&) { return ++n_events > 0; });
  while (n_events < 3) std::this_thread::yield();
  rig.loop().cancel(id);
  rig.loop().cancel(12345678);  // unknown ids are ignored
  EXPECT_EQ(sink->wait().end, Answer::End::kCancelled);
  // A sink that refuses counts as a client that went away.
  int n_left = 3;
  const auto refusing =
      rig.submit(ask_for("5", -1), {}, [&](const Event&) { return --n_left > 0; });
  EXPECT_EQ(refusing->wait().end, Answer::End::kCancelled);
  EXPECT_EQ(rig.ask(ask_for("x")).text, "yz");
  EXPECT_EQ(rig.loop().counters().n_cancelled, 2);
  rig.stop();
  rig.engine().check_invariants();
  EXPECT_EQ(rig.engine().cells().n_free(), 1024);
  EXPECT_EQ(rig.engine().n_free_sequences(), 8);
}

TEST_F(LoopTest, AFailingRequestFailsAloneAndTheOthersLoseNothing) {
  ServingRig rig(*model_, small());
  const auto mix = make_mix(*model_, {module("step2"), module("back")}, {.n_requests = 7});
  const auto alone = answer_alone(rig, mix);
  // After its second token somebody breaks the victim's sequence behind the loop's back (from the
  // sink, which is called on the engine thread): from then on every step with it is refused.
  Engine& engine = rig.engine();
  const std::int64_t n_failed_before = rig.loop().counters().n_failed_steps;
  int n_tokens = 0;
  const auto victim = rig.submit(ask_for("123", -1), {}, [&](const Event& event) {
    if (std::holds_alternative<TokenOutput>(event) && ++n_tokens == 2) {
      for (std::int32_t sequence = 0; sequence < 8; ++sequence) {
        if (engine.cells().length(sequence) == 4) engine.truncate_sequence(sequence, 2);
      }
    }
    return true;
  });
  const auto together = answer_together(rig, mix, 5);
  const Answer failed = victim->wait();
  EXPECT_EQ(failed.end, Answer::End::kFailed);
  EXPECT_EQ(failed.error.code, ErrorCode::kInternal);
  EXPECT_GT(rig.loop().counters().n_failed_steps, n_failed_before);
  expect_same(alone, together, "beside a failing request");
  EXPECT_TRUE(rig.loop().counters().healthy);
}

TEST_F(LoopTest, NonFiniteLogitsOfOneRequestReachNobodyElse) {
  ServingRig rig(*model_, small());
  const auto mix = make_mix(*model_, {module("step2")}, {.n_requests = 7});
  const auto alone = answer_alone(rig, mix);
  const auto wild = make_random_module(model_->base(), {.strength = 1000});
  AttachmentSet set;
  set.attachments.push_back({wild, std::numeric_limits<float>::max(), 0});
  const auto victim = rig.submit(ask_for("123", -1), set);
  const auto together = answer_together(rig, mix, 6);
  EXPECT_EQ(victim->wait().end, Answer::End::kFailed);
  expect_same(alone, together, "beside non-finite logits");
}

TEST_F(LoopTest, RandomLoadInLittleMemoryGivesTheAnswersOfEachAlone) {
  const std::vector<std::shared_ptr<const ModuleVersion>> modules = {
      module("step2"), module("back"), make_random_module(model_->base(), {.rank = 3})};
  for (std::uint32_t seed = 1; seed <= 2; ++seed) {
    const auto mix = make_mix(
        *model_, modules, {.seed = seed, .n_requests = 40, .max_prompt = 120, .max_generated = 60});
    ServingRig alone_rig(*model_, small());
    const auto alone = answer_alone(alone_rig, mix);
    RigOptions tight = {.engine = {.n_ctx = 256, .max_seqs = 16, .n_batch = 48, .n_threads = 2},
                        .loop = {.n_headroom_cells = 0}};
    tight.loop.n_prefill_beside_decode = static_cast<std::int32_t>(1 + 5 * seed);
    ServingRig rig(*model_, tight);
    // When they come is up to the machine; if never too many ran at once: again.
    for (int i = 0; i < 1 || (i < 20 && rig.loop().counters().n_preemptions == 0); ++i) {
      expect_same(alone, answer_together(rig, mix, seed), "seed " + std::to_string(seed));
    }
    EXPECT_GT(rig.loop().counters().n_preemptions, 0);
    rig.stop();
    rig.engine().check_invariants();
    EXPECT_EQ(rig.engine().cells().n_free(), 256);
  }
}

TEST_F(LoopTest, TheBaseIsUnchangedAfterAThousandModules) {
  ServingRig rig(*model_, small());
  const auto mix = make_mix(*model_, {}, {.n_requests = 3});
  const auto before = answer_alone(rig, mix);
  std::weak_ptr<const ModuleVersion> last;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const auto module = make_random_module(model_->base(), {.seed = i, .rank = 2 + i % 7});
    GenerationRequest request = ask_for("abc", 1);
    request.stop.ignore_eos = true;
    ASSERT_EQ(rig.ask(request, with({module})).end, Answer::End::kLength);
    last = module;
  }
  expect_same(before, answer_alone(rig, mix), "after a thousand modules");
  EXPECT_TRUE(last.expired()) << "a finished request holds no lease";
}

TEST_F(LoopTest, StoppingFinishesStreamsUntilTheDeadlineAndFailsTheRest) {
  ServingRig rig(*model_, small());
  const auto short_one = rig.submit(ask_for("x"), {});
  rig.loop().drain();
  const Answer late = rig.ask(ask_for("x"));
  EXPECT_EQ(late.error.code, ErrorCode::kUnavailable);
  rig.loop().stop(std::chrono::milliseconds(20000));  // returns when the streams have ended
  EXPECT_EQ(short_one->wait().text, "yz");

  ServingRig hurried(*model_, small());
  std::vector<std::shared_ptr<CollectingSink>> endless;
  for (int i = 0; i < 20; ++i) endless.push_back(hurried.submit(ask_for("5", -1), {}));
  hurried.loop().stop(std::chrono::milliseconds(0));
  for (const auto& sink : endless) {
    const Answer answer = sink->wait();
    if (answer.end == Answer::End::kLength) continue;  // was ready before the stop
    EXPECT_EQ(answer.end, Answer::End::kFailed);
    EXPECT_EQ(answer.error.code, ErrorCode::kUnavailable);
  }
}

TEST_F(LoopTest, AFullQueueIsAnErrorNotAWait) {
  RigOptions options = small();
  options.loop.max_waiting = 4;
  options.engine.max_seqs = 1;
  ServingRig rig(*model_, options);
  int n_refused = 0;
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int i = 0; i < 40; ++i) {
    auto sink = std::make_shared<CollectingSink>();
    const Status status = rig.loop().submit({ask_for("5", 60), {}, sink});
    if (status) {
      sinks.push_back(sink);
    } else {
      EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
      ++n_refused;
    }
  }
  EXPECT_GT(n_refused, 0);
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().end, Answer::End::kLength);
}

}  // namespace
}  // namespace graft
