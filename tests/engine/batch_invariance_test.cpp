// The promise that others' company never changes an answer, on the real model through the loop: for
// every weight type that keeps it, each request alone against all of them together - random
// arrival, other chunk sizes, other thread counts, cells in other places, after preemption.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/random_adapter.h"
#include "support/request_mix.h"
#include "support/test_files.h"

namespace graft {
namespace {

// A model, requests for it, and what each of them gets alone. One thread computes unless a test is
// about threads: spinning threads crawl where cores are shared.
struct Reference {
  explicit Reference(const std::string& weight_type)
      : model(load_model(cached_model("SmolLM2-135M-Instruct-" + weight_type + ".gguf"))),
        modules({make_random_module(model->base(), {.seed = 1, .rank = 16}),
                 make_random_module(model->base(), {.seed = 2, .rank = 5}),
                 make_random_module(model->base(), {.seed = 3, .rank = 40})}),
        mix(make_mix(*model, modules, {.n_requests = 8, .max_prompt = 70, .max_generated = 12})) {
    ServingRig rig(*model, {.engine = {.n_ctx = 2048, .max_seqs = 4, .n_threads = 1}});
    alone = answer_alone(rig, mix);
  }

  std::unique_ptr<Model> model;
  std::vector<std::shared_ptr<const ModuleVersion>> modules;
  std::vector<MixedRequest> mix;
  std::vector<Answer> alone;
};

class BatchInvariance : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto& made = references_[GetParam()];
    if (made == nullptr) made = std::make_unique<Reference>(GetParam());
    reference_ = made.get();
  }
  static void TearDownTestSuite() { references_.clear(); }

  Model& model() { return *reference_->model; }
  const std::vector<MixedRequest>& mix() { return reference_->mix; }
  const std::vector<Answer>& alone() { return reference_->alone; }

  Reference* reference_ = nullptr;
  static std::map<std::string, std::unique_ptr<Reference>> references_;  // by weight type
};

std::map<std::string, std::unique_ptr<Reference>> BatchInvariance::references_;

TEST_P(BatchInvariance, TogetherEqualsAloneWhateverTheChunks) {
  ServingRig rig(model(), {.engine = {.n_ctx = 2048, .max_seqs = 12, .n_threads = 1},
                           .loop = {.n_prefill_beside_decode = 7}});
  expect_same(alone(), answer_together(rig, mix(), 1), "chunks of 7");
}

TEST_P(BatchInvariance, TogetherEqualsAloneOnAnotherNumberOfThreads) {
  ServingRig rig(model(), {.engine = {.n_ctx = 2048, .max_seqs = 5, .n_batch = 64, .n_threads = 2},
                           .loop = {.n_prefill_beside_decode = 32}});
  const std::vector<MixedRequest> some(mix().begin(), mix().begin() + 3);
  const std::vector<Answer> expected(alone().begin(), alone().begin() + 3);
  expect_same(expected, answer_together(rig, some, 2), "two threads, five sequences");
}

TEST_P(BatchInvariance, PreemptedRequestsGoOnAsIfNothingHadHappened) {
  ServingRig rig(model(), {.engine = {.n_ctx = 256, .max_seqs = 8, .n_batch = 64, .n_threads = 1},
                           .loop = {.n_headroom_cells = 0}});
  // The oldest, which is never preempted, takes one cell after the other from the rest.
  MixedRequest growing = mix().front();
  growing.request.id += 500;
  growing.request.prompt.resize(120, 7);
  growing.request.stop.max_tokens = 100;
  const auto oldest = rig.submit(growing.request, growing.attachments);
  const auto together = answer_together(rig, mix(), 3);
  expect_same(alone(), together, "little memory");
  EXPECT_EQ(oldest->wait().n_generated_tokens, 100);
  EXPECT_GT(rig.loop().counters().n_preemptions, 0) << "the test must preempt to prove something";
}

TEST_P(BatchInvariance, CancelledNeighboursAndFragmentedCellsChangeNothing) {
  ServingRig rig(model(), {.engine = {.n_ctx = 1024, .max_seqs = 12, .n_threads = 1}});
  // Neighbours that go away in the middle leave holes between the others' cells.
  auto neighbours =
      make_mix(model(), reference_->modules, {.seed = 9, .n_requests = 8, .max_prompt = 40});
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  std::vector<Answer> together;
  for (std::size_t i = 0; i < mix().size(); ++i) {
    const int n_wanted = static_cast<int>(i % 4);
    int n_seen = 0;
    neighbours[i].request.stop.max_tokens = 100;
    rig.submit(neighbours[i].request, neighbours[i].attachments,
               [n_wanted, n_seen](const Event&) mutable { return n_seen++ < n_wanted; });
    sinks.push_back(rig.submit(mix()[i].request, mix()[i].attachments));
  }
  for (const auto& sink : sinks) together.push_back(sink->wait());
  expect_same(alone(), together, "cancelled neighbours");
  rig.stop();
  rig.engine().check_invariants();
  EXPECT_EQ(rig.engine().cells().n_free(), 1024);
}

INSTANTIATE_TEST_SUITE_P(WeightTypes, BatchInvariance,
                         testing::Values("Q4_0", "Q4_1", "Q5_0", "Q8_0"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace graft
