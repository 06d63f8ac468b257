// The promise that others' company never changes an answer, on the real model through the loop: for
// every weight type that keeps it, each request alone against all of them together - random
// arrival, other chunk sizes, other thread counts, cells in other places, after preemption.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/random_adapter.h"
#include "support/request_mix.h"
#include "support/test_files.h"

namespace graft {
namespace {

class BatchInvariance : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = load_model(cached_model("SmolLM2-135M-Instruct-" + std::string(GetParam()) + ".gguf"));
    modules_ = {make_random_module(model_->base(), {.seed = 1, .rank = 16}),
                make_random_module(model_->base(), {.seed = 2, .rank = 5}),
                make_random_module(model_->base(), {.seed = 3, .rank = 40})};
    mix_ = make_mix(*model_, modules_, {.n_requests = 12});
    ServingRig rig(*model_, {.engine = {.n_ctx = 2048, .max_seqs = 4, .n_threads = 2}});
    alone_ = answer_alone(rig, mix_);
  }

  std::unique_ptr<Model> model_;
  std::vector<std::shared_ptr<const ModuleVersion>> modules_;
  std::vector<MixedRequest> mix_;
  std::vector<Answer> alone_;
};

TEST_P(BatchInvariance, TogetherEqualsAloneWhateverTheChunks) {
  ServingRig rig(*model_, {.engine = {.n_ctx = 2048, .max_seqs = 12, .n_threads = 2},
                           .loop = {.n_prefill_beside_decode = 7}});
  expect_same(alone_, answer_together(rig, mix_, 1), "chunks of 7");
}

TEST_P(BatchInvariance, TogetherEqualsAloneOnAnotherNumberOfThreads) {
  ServingRig rig(*model_, {.engine = {.n_ctx = 2048, .max_seqs = 5, .n_batch = 64, .n_threads = 3},
                           .loop = {.n_prefill_beside_decode = 32}});
  expect_same(alone_, answer_together(rig, mix_, 2), "three threads, five sequences");
}

TEST_P(BatchInvariance, PreemptedRequestsGoOnAsIfNothingHadHappened) {
  ServingRig rig(*model_, {.engine = {.n_ctx = 256, .max_seqs = 8, .n_batch = 64, .n_threads = 2},
                           .loop = {.n_headroom_cells = 0}});
  const auto together = answer_together(rig, mix_, 3);
  expect_same(alone_, together, "little memory");
  EXPECT_GT(rig.loop().counters().n_preemptions, 0) << "the test must preempt to prove something";
}

TEST_P(BatchInvariance, CancelledNeighboursAndFragmentedCellsChangeNothing) {
  ServingRig rig(*model_, {.engine = {.n_ctx = 1024, .max_seqs = 12, .n_threads = 2}});
  // Neighbours that go away in the middle leave holes between the others' cells.
  auto neighbours = make_mix(*model_, modules_, {.seed = 9, .n_requests = 12, .max_prompt = 40});
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  std::vector<Answer> together;
  for (std::size_t i = 0; i < mix_.size(); ++i) {
    const int n_wanted = static_cast<int>(i % 4);
    int n_seen = 0;
    neighbours[i].request.stop.max_tokens = 100;
    rig.submit(neighbours[i].request, neighbours[i].attachments,
               [n_wanted, n_seen](const Event&) mutable { return n_seen++ < n_wanted; });
    sinks.push_back(rig.submit(mix_[i].request, mix_[i].attachments));
  }
  for (const auto& sink : sinks) together.push_back(sink->wait());
  expect_same(alone_, together, "cancelled neighbours");
  rig.stop();
  rig.engine().check_invariants();
  EXPECT_EQ(rig.engine().cells().n_free(), 1024);
}

INSTANTIATE_TEST_SUITE_P(WeightTypes, BatchInvariance, testing::Values("Q4_0", "Q4_1", "Q8_0"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace graft
