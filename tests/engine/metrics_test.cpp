// The counters of a loop at work, scraped all the while by another thread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "metrics/exposition.h"
#include "modules/store/load_module.h"
#include "support/serving_rig.h"
#include "support/test_files.h"

namespace graft {
namespace {

class MetricsTest : public testing::Test {
 protected:
  MetricsTest()
      : model_(load_model(source_file("tests/synthetic/counting.gguf"))),
        rig_(*model_, {.engine = {.n_ctx = 256, .max_seqs = 4, .n_batch = 64, .n_threads = 1}}) {}

  std::shared_ptr<const ModuleVersion> module(const std::string& name) const {
    auto loaded = load_module({name, source_file("tests/synthetic/adapters/" + name)},
                              model_->base(), Precision::kFile);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return *loaded;
  }

  GenerationRequest digits(std::int32_t max_tokens) {
    GenerationRequest request;
    request.id = next_id_++;
    request.prompt = *model_->vocabulary().tokenize("12345", {.add_special = false});
    request.sampling.temperature = 0;
    request.stop.max_tokens = max_tokens;
    return request;
  }

  const ServingCounters& counters() { return rig_.loop().metrics(); }

  std::unique_ptr<Model> model_;
  ServingRig rig_;
  RequestId next_id_ = 1;
};

std::int64_t sum_over(const ModuleTable& modules, ModuleSeries::Counter ModuleSeries::*counter) {
  std::int64_t sum = 0;
  for (const auto& [name, series] : modules.all()) sum += (series->*counter).load();
  return sum;
}

TEST_F(MetricsTest, NumbersAddUpWhileAnotherThreadScrapes) {
  const auto step2 = module("step2");
  std::atomic<bool> done{false};
  std::atomic<int> n_scrapes{0};
  const HttpCounters http;
  ExpositionFacts facts;
  facts.model_name = "counting";
  std::jthread scraper([&] {
    while (!done) {
      const std::string text = exposition(counters(), http, facts);
      EXPECT_NE(text.find("graft_generated_tokens_total"), std::string::npos);
      ++n_scrapes;
    }
  });
  std::vector<std::shared_ptr<CollectingSink>> answers;
  for (int i = 0; i < 60; ++i) {
    AttachmentSet set;
    if (i % 3 == 0) set.attachments.push_back({step2});
    answers.push_back(rig_.submit(digits(1 + i % 20), std::move(set)));
  }
  std::int64_t n_generated = 0;
  for (const auto& answer : answers) n_generated += answer->wait().n_generated_tokens;
  // The last event is published before it is counted.
  while (counters().snapshot().n_running > 0) std::this_thread::yield();
  done = true;
  scraper.join();
  EXPECT_GT(n_scrapes, 0);

  const ServingSnapshot now = counters().snapshot();
  EXPECT_EQ(now.n_generated_tokens, n_generated);
  EXPECT_EQ(now.n_submitted, 60);
  EXPECT_EQ(now.n_finished, 60);
  EXPECT_EQ(now.n_length, 60);
  EXPECT_EQ(now.first_token_us.n_values(), 60);
  EXPECT_EQ(now.inter_token_us.n_values(), n_generated - 60);
  EXPECT_EQ(now.request_us.n_values(), 60);
  EXPECT_EQ(now.generated_tokens.sum, n_generated);
  EXPECT_EQ(now.prompt_tokens.sum, 60 * 5);
  EXPECT_GE(now.request_us.sum, now.queue_us.sum + now.inference_us.sum);
  EXPECT_EQ(now.inference_us.sum, now.prefill_us.sum + now.decode_us.sum);
  EXPECT_GE(now.step_tokens.sum, n_generated - 60 + 300);

  const ModuleTable& modules = counters().modules();
  ASSERT_EQ(modules.all().size(), 2U);
  EXPECT_EQ(modules.all()[0].first, "base");
  EXPECT_EQ(modules.all()[1].first, "step2");
  EXPECT_EQ(modules.all()[1].second->n_length, 20);
  EXPECT_EQ(sum_over(modules, &ModuleSeries::n_generated_tokens), n_generated);
  EXPECT_EQ(sum_over(modules, &ModuleSeries::n_running), 0);
  EXPECT_EQ(sum_over(modules, &ModuleSeries::n_waiting), 0);
}

TEST_F(MetricsTest, PreparingIsTimedWhereAClientWaited) {
  double prepare_ms = 0;
  const auto sink = std::make_shared<CollectingSink>([&](const Event& event) {
    if (const auto* end = std::get_if<Finished>(&event)) prepare_ms = end->timings.prepare_ms;
    return true;
  });
  Submission submission;
  submission.request = digits(1);
  submission.sink = sink;
  submission.received_at = std::chrono::steady_clock::now() - std::chrono::milliseconds(5);
  ASSERT_TRUE(rig_.loop().submit(std::move(submission)));
  sink->wait();
  EXPECT_GE(prepare_ms, 5);
  rig_.submit(digits(1), {})->wait();  // nobody waited for it
  while (counters().snapshot().n_finished < 2) std::this_thread::yield();
  EXPECT_EQ(counters().snapshot().prepare_us.n_values(), 1);
  EXPECT_GE(counters().snapshot().prepare_us.sum, 5000);
}

TEST_F(MetricsTest, CancelledRequestsAreCountedAndLeaveNoGauge) {
  std::vector<std::shared_ptr<CollectingSink>> answers;
  for (int i = 0; i < 6; ++i) {
    answers.push_back(rig_.submit(digits(200), {}, [](const Event& event) {
      return !std::holds_alternative<TokenOutput>(event);
    }));
  }
  while (counters().snapshot().n_cancelled < 6) std::this_thread::yield();
  const ServingSnapshot now = counters().snapshot();
  EXPECT_EQ(now.n_finished, 0);
  EXPECT_EQ(now.request_us.n_values(), 0);
  rig_.stop();
  EXPECT_EQ(sum_over(counters().modules(), &ModuleSeries::n_cancelled), 6);
  EXPECT_EQ(sum_over(counters().modules(), &ModuleSeries::n_running), 0);
  EXPECT_EQ(sum_over(counters().modules(), &ModuleSeries::n_waiting), 0);
}

// Before the first request, a router already asks for the memory's size.
TEST_F(MetricsTest, GaugesAreThereBeforeTheFirstStep) {
  while (counters().snapshot().n_cells == 0) std::this_thread::yield();
  EXPECT_EQ(counters().snapshot().n_cells, 256);
  EXPECT_EQ(counters().snapshot().n_free_cells, 256);
}

}  // namespace
}  // namespace graft
