// Constrained answers through the loop, on the counting model: whatever the model would rather say,
// the answer fits; and neighbours never notice.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "support/request_mix.h"
#include "support/test_files.h"
#include "text/constraint.h"

namespace graft {
namespace {

using Kind = ConstraintSource::Kind;
using nlohmann::json;

class ConstrainedLoopTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = load_model(source_file("tests/synthetic/counting.gguf")).release();
  }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }

  static std::shared_ptr<const Constraint> compile(const ConstraintSource& source) {
    auto made = Constraint::compile(model_->vocabulary(), source);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return made ? *made : nullptr;
  }

  static GenerationRequest ask_for(float temperature, std::uint32_t seed,
                                   std::int32_t max_tokens = 400) {
    static RequestId next_id = 1;
    GenerationRequest request;
    request.id = next_id++;
    request.prompt = *model_->vocabulary().tokenize("abc", {.add_special = false});
    request.sampling.temperature = temperature;
    request.sampling.seed = seed;
    request.sampling.n_logprobs = 0;
    request.stop.max_tokens = max_tokens;
    return request;
  }

  static RigOptions small() {
    return {.engine = {.n_ctx = 2048, .max_seqs = 8, .n_batch = 128, .n_threads = 1}};
  }

  static Answer ask(ServingRig& rig, GenerationRequest request, const ConstraintSource& source) {
    return rig.submit(std::move(request), {}, {}, compile(source))->wait();
  }

  static Model* model_;
};

Model* ConstrainedLoopTest::model_ = nullptr;

TEST_F(ConstrainedLoopTest, SchemasGiveJsonOfTheirShape) {
  ServingRig rig(*model_, small());
  const ConstraintSource source = {
      .kind = Kind::kJsonSchema,
      .text = R"({"type":"object","properties":{"id":{"type":"integer","minimum":0,"maximum":99},
        "tags":{"type":"array","items":{"enum":["red","green"]},"maxItems":3},
        "name":{"type":"string","maxLength":5},"code":{"type":"string","pattern":"^[A-Z]\"\\d$"}},
        "required":["id","tags","name","code"],"additionalProperties":false})"};
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    const Answer answer = ask(rig, ask_for(seed == 0 ? 0.0F : 2.0F, seed), source);
    ASSERT_EQ(answer.end, Answer::End::kStop) << answer.text << answer.error.message;
    const json value = json::parse(answer.text);
    ASSERT_EQ(value.size(), 4U) << answer.text;
    EXPECT_GE(value["id"], 0);
    EXPECT_LE(value["id"], 99);
    EXPECT_LE(value["tags"].size(), 3U);
    for (const auto& tag : value["tags"]) EXPECT_TRUE(tag == "red" || tag == "green");
    const auto code = value["code"].get<std::string>();
    EXPECT_TRUE(std::regex_match(code, std::regex("[A-Z]\"[0-9]"))) << code;
  }
}

TEST_F(ConstrainedLoopTest, ChoicesAndExpressions) {
  ServingRig rig(*model_, small());
  const ConstraintSource choice = {.kind = Kind::kChoice, .choices = {"maybe", "no"}};
  const ConstraintSource regex = {.kind = Kind::kRegex, .text = "[0-9]{3}-(x|y)+"};
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    const float temperature = seed == 0 ? 0.0F : 1.0F;
    const Answer chosen = ask(rig, ask_for(temperature, seed), choice);
    EXPECT_EQ(chosen.end, Answer::End::kStop);
    EXPECT_TRUE(chosen.text == "maybe" || chosen.text == "no") << chosen.text;
    const Answer matched = ask(rig, ask_for(temperature, seed, 30), regex);
    EXPECT_TRUE(std::regex_match(matched.text, std::regex("[0-9]{3}-(x|y)+"))) << matched.text;
  }
}

// A complete answer ends at once, and neither min_tokens nor ignore_eos makes it go on; where it
// may go on they do.
TEST_F(ConstrainedLoopTest, TheEndOfTheGrammarAndTheStopRules) {
  ServingRig rig(*model_, small());
  const ConstraintSource one = {.kind = Kind::kChoice, .choices = {"no"}};
  GenerationRequest request = ask_for(0, 1, 2);
  request.stop.min_tokens = 2;
  request.stop.ignore_eos = true;
  const Answer answer = ask(rig, request, one);
  EXPECT_EQ(answer.text, "no");
  EXPECT_EQ(answer.end, Answer::End::kStop);

  const ConstraintSource more = {.kind = Kind::kRegex, .text = "z*"};
  GenerationRequest at_least = ask_for(0, 1, 10);
  at_least.stop.min_tokens = 5;
  EXPECT_GE(ask(rig, at_least, more).n_generated_tokens, 5);
  GenerationRequest longer = ask_for(0, 1, 12);
  longer.stop.ignore_eos = true;
  const Answer ended_by_length = ask(rig, longer, more);
  EXPECT_EQ(ended_by_length.end, Answer::End::kLength);
  EXPECT_EQ(ended_by_length.text, std::string(ended_by_length.text.size(), 'z'));
  EXPECT_GE(ended_by_length.text.size(), 12U);
}

// The model counts on from "abc": "defghi...". What a token holds behind the trigger must fit.
TEST_F(ConstrainedLoopTest, StartsAtATriggerAndBehindAPrefix) {
  ServingRig rig(*model_, small());
  const auto ask_with = [&](const std::string& grammar, std::string prefix,
                            std::vector<GrammarTrigger> triggers) {
    Submission submission;
    submission.request = ask_for(0, 1, 40);
    submission.constraint = compile({.kind = Kind::kGrammar, .text = grammar});
    submission.constraint_prefix = std::move(prefix);
    submission.constraint_triggers = std::move(triggers);
    const auto sink = std::make_shared<CollectingSink>();
    submission.sink = sink;
    EXPECT_TRUE(rig.loop().submit(std::move(submission)));
    return sink->wait().text;
  };
  const std::string alphabet = "defghijklmnopqrstuvwxyz";
  EXPECT_EQ(ask_with("root ::= \"gh\" [A-Z] \".\"", "", {{"gh", false}}).substr(0, 5), "defgh");
  EXPECT_TRUE(std::regex_match(ask_with("root ::= \"gh\" [A-Z] \".\"", "", {{"gh", false}}),
                               std::regex("defgh[A-Z]\\.")));
  EXPECT_EQ(ask_with("root ::= \"gh\" [A-Z]", "", {{"never", false}}), alphabet);
  // The grammar does not begin with its trigger: the answer stays free.
  EXPECT_EQ(ask_with("root ::= \"x\"", "", {{"gh", false}}), alphabet);
  EXPECT_EQ(ask_with("root ::= \"end of the prompt: \" \"no\"", "end of the prompt: ", {}), "no");
}

TEST_F(ConstrainedLoopTest, AWrongPrefixIsRefused) {
  ServingRig rig(*model_, small());
  Submission submission;
  submission.request = ask_for(0, 1);
  submission.constraint = compile({.kind = Kind::kGrammar, .text = "root ::= \"a\""});
  submission.constraint_prefix = "b";
  submission.sink = std::make_shared<CollectingSink>();
  EXPECT_FALSE(rig.loop().submit(std::move(submission)));
}

// Half of the requests constrained, by turns greedy and drawn: each gets in company, in little
// memory, what it gets alone.
TEST_F(ConstrainedLoopTest, CompanyAndPreemptionChangeNothing) {
  const auto schema = compile({.kind = Kind::kJsonSchema,
                               .text = R"({"type":"array","items":{"type":"integer"},"minItems":4,
                                           "maxItems":20})"});
  const auto mix = make_mix(*model_, {}, {.n_requests = 10, .max_prompt = 60, .max_generated = 40});
  const auto constraint = [&](std::size_t i) { return i % 2 == 0 ? schema : nullptr; };
  std::vector<Answer> alone;
  {
    ServingRig rig(*model_, small());
    for (std::size_t i = 0; i < mix.size(); ++i) {
      alone.push_back(rig.submit(mix[i].request, {}, {}, constraint(i))->wait());
    }
  }
  ServingRig rig(*model_, {.engine = {.n_ctx = 256, .max_seqs = 8, .n_batch = 64, .n_threads = 2},
                           .loop = {.n_headroom_cells = 0}});
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (std::size_t i = 0; i < mix.size(); ++i) {
    sinks.push_back(rig.submit(mix[i].request, {}, {}, constraint(i)));
  }
  std::vector<Answer> together;
  for (const auto& sink : sinks) together.push_back(sink->wait());
  expect_same(alone, together, "beside constrained neighbours");
  EXPECT_GT(rig.loop().counters().n_preemptions, 0) << "the test must preempt to prove something";
  EXPECT_EQ(together[0].text.front(), '[');
}

// A grammar that explodes where nobody looked before: that request fails, its neighbour does not
// even stutter.
TEST_F(ConstrainedLoopTest, AnExplosionFailsItsRequestAlone) {
  std::string grammar = "root ::= [a-c]{300} r0\n";
  for (int i = 0; i < 30; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    grammar += "r" + std::to_string(i) + " ::= " + next + " \"x\" | " + next + " \"y\"\n";
  }
  ServingRig rig(*model_, small());
  const GenerationRequest other = ask_for(0, 1, 50);
  const Answer alone = rig.ask(other);
  const auto exploding =
      rig.submit(ask_for(0, 1, 600), {}, {},
                 compile({.kind = Kind::kGrammar, .text = grammar + "r30 ::= \"a\""}));
  const Answer beside = rig.ask(other);
  const Answer failed = exploding->wait();
  EXPECT_EQ(failed.end, Answer::End::kFailed);
  EXPECT_EQ(failed.error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(failed.error.message.find("too ambiguous"), std::string::npos) << failed.error.message;
  EXPECT_TRUE(beside.same_as(alone));
  rig.stop();
  rig.engine().check_invariants();
  EXPECT_EQ(rig.engine().cells().n_free(), 2048);
}

}  // namespace
}  // namespace graft
