// The cases of tests/golden: models, adapters and the logits of transformers + PEFT for them, and
// how a case is run on a raw context. For one thread; failures are those of the running test.
#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/model.h"
#include "modules/formats/read_adapter.h"
#include "modules/residency/resident_adapter.h"
#include "support/raw_context.h"

namespace graft::testing {

constexpr double kGoldenTolerance = 5e-4;

inline std::string golden_file(const std::string& path) {
  return std::string(GRAFT_SOURCE_DIR) + "/tests/golden/" + path;
}

struct GoldenCase {
  std::string name;
  std::string model;
  std::vector<std::pair<std::string, float>> adapters;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> rows;
  std::vector<float> logits;  // [rows][n_vocab]
  std::size_t n_vocab = 0;
};

inline std::vector<GoldenCase> read_golden_cases() {
  const auto index = nlohmann::json::parse(std::ifstream(golden_file("golden.json")));
  std::ifstream values(golden_file(index["logits"].get<std::string>()), std::ios::binary);
  std::vector<GoldenCase> cases;
  for (const auto& entry : index["cases"]) {
    GoldenCase made;
    made.name = entry["name"];
    made.model = entry["model"];
    for (const auto& adapter : entry["adapters"]) {
      made.adapters.emplace_back(adapter.value("path", adapter.value("file", "")),
                                 adapter.value("scale", 1.0F));
    }
    made.tokens = entry["tokens"].get<std::vector<TokenId>>();
    made.rows = entry["rows"].get<std::vector<std::int32_t>>();
    made.n_vocab = index["n_vocab"];
    made.logits.resize(made.rows.size() * made.n_vocab);
    values.seekg(entry["offset"].get<std::int64_t>());
    values.read(reinterpret_cast<char*>(made.logits.data()),
                static_cast<std::streamsize>(made.logits.size() * sizeof(float)));
    EXPECT_TRUE(values.good()) << made.name;
    cases.push_back(std::move(made));
  }
  return cases;
}

// Loaded once for the process and each device (null: the CPU).
inline const Model& golden_model(const std::string& path, ggml_backend_device* device = nullptr) {
  static std::map<std::pair<std::string, ggml_backend_device*>, std::unique_ptr<Model>> models;
  std::unique_ptr<Model>& model = models[{path, device}];
  if (model == nullptr) {
    auto loaded = Model::load({.path = golden_file(path), .device = device});
    if (!loaded) throw std::runtime_error(loaded.error().message);
    model = std::move(loaded).value();
  }
  return *model;
}

inline std::shared_ptr<const ResidentAdapter> golden_adapter(
    const std::string& path, const Model& model, Precision precision = Precision::kFile) {
  auto adapter = read_adapter(golden_file(path), model.base());
  if (!adapter) throw std::runtime_error(path + ": " + adapter.error().message);
  auto resident = ResidentAdapter::pack(std::move(adapter).value(), precision);
  if (!resident) throw std::runtime_error(path + ": " + resident.error().message);
  return std::move(resident).value();
}

// How a case is computed.
struct GoldenPath {
  const char* name = "";
  bool our_attention = true;
  int chunk = 64;
  bool company = false;  // beside another sequence, which runs on the base
  EmitterKind emitter = EmitterKind::kFused;
  ggml_backend_device* device = nullptr;
};

// Largest difference over the case's rows.
inline double run_golden_case(const GoldenCase& golden, const GoldenPath& path) {
  const Model& model = golden_model(golden.model, path.device);
  RawContext context(model.handle(), {.n_ctx = 512,
                                      .n_batch = 64,
                                      .n_seqs = 2,
                                      .n_threads = 1,
                                      .attention = path.our_attention,
                                      .emitter = path.emitter,
                                      .device = path.device,
                                      .flash_attention = path.our_attention,
                                      .cache_type = GGML_TYPE_F32});
  std::vector<std::shared_ptr<const ResidentAdapter>> leases;
  std::vector<PlannedAttachment> set;
  for (const auto& [file, scale] : golden.adapters) {
    leases.push_back(golden_adapter(file, model));
    const Status attachable = context.grafter().check_attachable(*leases.back());
    EXPECT_TRUE(attachable) << attachable.error().message;
    set.push_back({leases.back().get(), scale, 0});
  }
  double worst = 0;
  StepPlan plan;
  const auto n = static_cast<int>(golden.tokens.size());
  for (int position = 0, step = 0; position < n; ++step) {
    plan.clear();
    if (!set.empty()) plan.sets.push_back(set);
    if (path.company) {
      plan.rows.push_back({static_cast<TokenId>(step + 7), step, 1, true, -1});
    }
    std::vector<std::pair<std::size_t, std::int32_t>> wanted;
    for (int i = 0; i < path.chunk && position < n; ++i, ++position) {
      const bool output =
          std::find(golden.rows.begin(), golden.rows.end(), position) != golden.rows.end();
      if (output) wanted.emplace_back(plan.rows.size(), position);
      plan.rows.push_back({golden.tokens[static_cast<std::size_t>(position)], position, 0, output,
                           set.empty() ? -1 : 0});
    }
    EXPECT_EQ(context.decode(plan), 0) << context.grafter().last_error();
    for (const auto& [row, at] : wanted) {
      const auto k = static_cast<std::size_t>(
          std::find(golden.rows.begin(), golden.rows.end(), at) - golden.rows.begin());
      const std::span<const float> expected(golden.logits.data() + k * golden.n_vocab,
                                            golden.n_vocab);
      worst = std::max(worst, largest_difference(context.logits(row), expected));
    }
  }
  EXPECT_EQ(context.grafter().stats().n_module_nodes > 0, !set.empty());
  return worst;
}

inline std::string golden_case_name(const ::testing::TestParamInfo<GoldenCase>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace graft::testing
