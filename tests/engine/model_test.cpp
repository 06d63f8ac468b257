// Loading models and stepping the engine directly: files that are no models, what the base says of
// itself, and plans that would make libllama abort.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/serving_rig.h"
#include "support/test_files.h"

namespace graft {
namespace {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "graft-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = path_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

ErrorCode load_error(const std::string& path) {
  const auto model = Model::load({.path = path});
  EXPECT_FALSE(model) << path;
  return model ? ErrorCode::kInternal : model.error().code;
}

TEST(Model, FilesThatAreNoModelsAreErrors) {
  const ScratchFolder folder;
  EXPECT_EQ(load_error(folder.path() + "/missing.gguf"), ErrorCode::kNotFound);
  EXPECT_EQ(load_error(folder.path()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(load_error(folder.write("empty", "")), ErrorCode::kDataCorrupt);
  EXPECT_EQ(load_error(folder.write("text", "this is no model")), ErrorCode::kDataCorrupt);
  EXPECT_EQ(load_error(folder.write("magic", "GGUF\3\0\0")), ErrorCode::kDataCorrupt);
  EXPECT_EQ(load_error(source_file("tests/golden/adapters/llama_linear.gguf")),
            ErrorCode::kInvalidArgument);
}

TEST(Model, ATruncatedFileIsAnErrorWhereverItEnds) {
  const ScratchFolder folder;
  const std::string whole = read_all(source_file("tests/golden/models/llama.gguf"));
  ASSERT_GT(whole.size(), 100000U);
  for (std::size_t size = 4; size < whole.size(); size += 1 + whole.size() / 40) {
    EXPECT_EQ(load_error(folder.write("cut.gguf", whole.substr(0, size))), ErrorCode::kDataCorrupt)
        << size << " bytes";
  }
}

TEST(Model, SaysWhatTheFileHolds) {
  const auto model = load_model(source_file("tests/golden/models/qwen3moe.gguf"));
  const BaseModel& base = model->base();
  EXPECT_EQ(base.architecture, "qwen3moe");
  EXPECT_TRUE(base.modules_supported);
  EXPECT_EQ(base.n_experts, 4);
  EXPECT_EQ(base.n_vocab, model->vocabulary().size());
  EXPECT_NE(base.find("blk.0.ffn_gate_exps.weight"), nullptr);
  EXPECT_EQ(base.find("blk.0.ffn_gate_exps.weight")->ne[2], 4);
  EXPECT_EQ(base.digest.size(), 64U);
  EXPECT_FALSE(model->facts().description.empty());

  const auto tied = load_model(source_file("tests/golden/models/qwen3.gguf"));
  EXPECT_TRUE(tied->base().tied_head);
  EXPECT_EQ(tied->base().head_dim_k, 32);
  EXPECT_NE(tied->base().digest, base.digest);
}

TEST(Model, LoadingCanBeWatchedAndCancelled) {
  const std::string path = source_file("tests/golden/models/llama.gguf");
  float last = -1;
  const auto watched = Model::load({.path = path, .on_progress = [&](float fraction) {
                                      last = fraction;
                                      return true;
                                    }});
  EXPECT_TRUE(watched);
  EXPECT_EQ(last, 1);
  EXPECT_EQ((*watched)->facts().pooling, Pooling::kMean);  // the file names none
  const auto cancelled = Model::load({.path = path, .on_progress = [](float) { return false; }});
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
}

class EngineStep : public testing::Test {
 protected:
  void SetUp() override {
    model_ = load_model(source_file("tests/synthetic/counting.gguf"));
    auto engine = Engine::create(
        *model_,
        {.n_ctx = 256, .max_seqs = 4, .n_batch = 64, .n_threads = 2, .max_reported_rows = 3});
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  static StepPlan rows(std::int32_t sequence, std::int32_t first, std::int32_t n) {
    StepPlan plan;
    for (std::int32_t i = 0; i < n; ++i) {
      plan.rows.push_back({.token = 5,
                           .position = first + i,
                           .sequence = sequence,
                           .is_output = i + 1 == n,
                           .set = -1});
    }
    return plan;
  }
  void expect_refused(const StepPlan& plan, const std::string& why) {
    const std::int32_t n_free = engine_->cells().n_free();
    const StepOutcome outcome = engine_->step(plan);
    EXPECT_EQ(outcome.kind, StepOutcome::kRefused) << why;
    EXPECT_NE(outcome.message.find(why), std::string::npos) << outcome.message;
    EXPECT_EQ(engine_->cells().n_free(), n_free);
    engine_->check_invariants();
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineStep, PlansThatWouldAbortLibllamaAreRefused) {
  const std::int32_t sequence = *engine_->acquire_sequence();
  expect_refused({}, "no rows");
  expect_refused(rows(sequence, 0, 65), "too many rows");
  expect_refused(rows(sequence, 3, 2), "position");
  expect_refused(rows(sequence + 1, 0, 2), "no such sequence");
  expect_refused(rows(-1, 0, 2), "no such sequence");
  expect_refused(rows(1000, 0, 2), "no such sequence");
  StepPlan plan = rows(sequence, 0, 3);
  plan.rows[1].token = model_->vocabulary().size();
  expect_refused(plan, "vocabulary");
  plan = rows(sequence, 0, 3);
  plan.rows[2].set = 0;
  expect_refused(plan, "no such set");
  plan = rows(sequence, 0, 9);  // four sequences, one for copies, three reported rows
  for (PlannedRow& row : plan.rows) row.is_output = true;
  expect_refused(plan, "too many outputs");
  plan = rows(sequence, 0, 2);
  plan.rows[0].is_tapped = true;  // but no output
  expect_refused(plan, "final state");
  plan = rows(sequence, 0, 2);
  const std::int32_t other = *engine_->acquire_sequence();
  for (const PlannedRow& row : rows(other, 0, 1).rows) plan.rows.push_back(row);
  plan.rows.push_back(
      {.token = 5, .position = 0, .sequence = sequence, .is_output = false, .set = -1});
  expect_refused(plan, "contiguous");
}

TEST_F(EngineStep, MemoryIsCountedExactly) {
  const std::int32_t sequence = *engine_->acquire_sequence();
  for (std::int32_t n = 0; n < 256; n += 64) {
    ASSERT_EQ(engine_->step(rows(sequence, n, 64)).kind, StepOutcome::kDone);
  }
  EXPECT_EQ(engine_->cells().n_free(), 0);
  engine_->check_invariants();
  expect_refused(rows(sequence, 256, 1), "free cells");
  engine_->truncate_sequence(sequence, 100);
  const std::int32_t copy = *engine_->acquire_sequence();
  engine_->copy_sequence(sequence, copy, 50);
  EXPECT_EQ(engine_->cells().n_free(), 156);
  EXPECT_EQ(engine_->step(rows(copy, 50, 64)).kind, StepOutcome::kDone);
  engine_->release_sequence(sequence);
  EXPECT_EQ(engine_->cells().n_free(), 256 - 114);
  engine_->check_invariants();
}

TEST_F(EngineStep, OneDecodeIsOneComputationAtEverySize) {
  for (const std::int32_t n : {1, 8, 40, 64}) {
    const std::int32_t sequence = *engine_->acquire_sequence();
    const std::int64_t before = engine_->grafter().stats().n_computes;
    ASSERT_EQ(engine_->step(rows(sequence, 0, n)).kind, StepOutcome::kDone);
    EXPECT_EQ(engine_->grafter().stats().n_computes - before, 1) << n << " rows";
    EXPECT_EQ(engine_->logits(n - 1).size(), static_cast<std::size_t>(model_->vocabulary().size()));
    engine_->release_sequence(sequence);
  }
}

TEST_F(EngineStep, EveryKindOfKeysAndValuesWorks) {
  for (const KvType type : {KvType::kF32, KvType::kQ8_0}) {
    auto engine = Engine::create(
        *model_, {.n_ctx = 256, .max_seqs = 2, .n_batch = 64, .n_threads = 1, .kv_type = type});
    if (!engine) {
      EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument) << engine.error().message;
      continue;
    }
    const std::int32_t sequence = *(*engine)->acquire_sequence();
    EXPECT_EQ((*engine)->step(rows(sequence, 0, 3)).kind, StepOutcome::kDone);
  }
}

}  // namespace
}  // namespace graft
