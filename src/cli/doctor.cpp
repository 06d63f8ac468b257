// `graft doctor`: what Graft promises, measured on this machine and this file.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "cli/company_check.h"
#include "cli/compute_logits.h"
#include "cli/loading.h"
#include "cli/run.h"
#include "cli/site_norms.h"
#include "cli/statistics.h"
#include "modules/formats/read_adapter.h"

namespace graft::cli {
namespace {

void print_machine(const DoctorCommand& command, const LoadedModel& loaded) {
  const ModelFacts& facts = loaded.model->facts();
  std::printf("model      %s, %s\n", command.model.path.c_str(), facts.description.c_str());
  std::printf("           %.1f MiB of weights, %lld layers, trained for %d tokens%s\n",
              static_cast<double>(facts.weight_bytes) / (1 << 20),
              static_cast<long long>(loaded.model->base().n_layers), facts.n_ctx_train,
              facts.has_sliding_window ? ", sliding window" : "");
  std::printf("matrices  ");
  for (const auto& [type, n] : facts.matrices_by_type) std::printf(" %d %s", n, type.c_str());
  std::printf("\nmodules    %s\n",
              loaded.model->base().modules_supported
                  ? "proven on this architecture"
                  : "not proven on this architecture: only the base can be served");
  std::printf("machine    %u processors, %d compute threads, %d cells, %d sequences\n",
              std::thread::hardware_concurrency(), loaded.engine->n_threads(),
              loaded.engine->cells().n_cells(), loaded.engine->max_sequences());
}

void print_attention(Engine& engine) {
  const GrafterStats& stats = engine.grafter().stats();
  std::printf("attention  %lld nodes computed by Graft, %lld left to ggml\n",
              static_cast<long long>(stats.n_attention_nodes),
              static_cast<long long>(stats.n_foreign_attention_nodes));
  const std::string notes = engine.grafter().attention_notes();
  if (!notes.empty()) std::printf("           why: %s\n", notes.c_str());
}

// Median time of a step of `n_rows` rows, each of its own sequence (decode) or all of one
// (prefill).
Result<double> step_ms(Engine& engine, std::int32_t n_rows, bool decode) {
  constexpr int kSteps = 7;
  std::vector<double> times;
  std::vector<std::int32_t> sequences;
  const std::int32_t n_sequences = decode ? n_rows : 1;
  for (std::int32_t i = 0; i < n_sequences; ++i) sequences.push_back(*engine.acquire_sequence());
  StepOutcome outcome;
  for (int step = 0; step < kSteps && outcome.kind == StepOutcome::kDone; ++step) {
    StepPlan plan;
    if (!decode) engine.truncate_sequence(sequences.front(), 0);
    for (std::int32_t i = 0; i < n_rows; ++i) {
      plan.rows.push_back({.token = 0,
                           .position = decode ? step : i,
                           .sequence = sequences[static_cast<std::size_t>(decode ? i : 0)],
                           .is_output = decode || i + 1 == n_rows,
                           .set = -1});
    }
    const auto begin = std::chrono::steady_clock::now();
    outcome = engine.step(plan);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    if (step > 0) times.push_back(time.count());  // the first one builds a graph
  }
  for (const std::int32_t sequence : sequences) engine.release_sequence(sequence);
  if (outcome.kind != StepOutcome::kDone) return internal_error(outcome.message);
  return quantile(times, 0.5);
}

Status print_step_times(Engine& engine) {
  std::printf("\nstep time (median, short contexts)\n");
  for (const std::int32_t n : {1, 8, 32}) {
    if (n > engine.max_sequences()) break;
    GRAFT_ASSIGN_OR_RETURN(const double ms, step_ms(engine, n, true));
    std::printf("  %3d sequences, one token each   %9.2f ms  %8.1f tokens/s\n", n, ms,
                n * 1000 / ms);
  }
  const std::int32_t n_rows = std::min(64, engine.max_rows());
  GRAFT_ASSIGN_OR_RETURN(const double ms, step_ms(engine, n_rows, false));
  std::printf("  %3d tokens of one prompt        %9.2f ms  %8.1f tokens/s\n", n_rows, ms,
              n_rows * 1000 / ms);
  return {};
}

// Returns whether company changes nothing.
Result<bool> print_company(Engine& engine, const ResidentAdapter* module) {
  CompanyCheck check(engine, module);
  GRAFT_ASSIGN_OR_RETURN(const auto results, check.run());
  std::printf("\na sequence's logits, compared with those it has alone\n");
  bool all_equal = true;
  for (const CompanyResult& result : results) {
    if (result.bit_equal) {
      std::printf("  %-46s identical in every bit\n", result.title.c_str());
    } else {
      std::printf("  %-46s differ by up to %.3g\n", result.title.c_str(), result.max_abs);
      all_equal = false;
    }
  }
  if (all_equal) return true;
  std::printf(
      "  The promise of identical answers covers q4_0, q4_1, q5_0 and q8_0 weights, and every\n"
      "  type with --deterministic.\n");
  std::printf("  Greedy answers may depend on the company where two tokens are nearly tied.\n");
  const bool left_to_ggml = engine.grafter().stats().n_foreign_attention_nodes > 0;
  std::printf(
      "  %s\n",
      left_to_ggml
          ? "Some attention nodes are left to ggml, whose order of sums depends on the batch."
          : "llama.cpp's kernel for one of these weight types adds up in an order that "
            "depends on the number of rows.");
  return false;
}

// The promise covers these types; without --deterministic others are measured and reported only.
bool is_promised(const ModelFacts& facts, bool deterministic) {
  return deterministic || std::all_of(facts.matrices_by_type.begin(), facts.matrices_by_type.end(),
                                      [](const auto& entry) {
                                        const std::string& type = entry.first;
                                        return type == "q4_0" || type == "q4_1" || type == "q5_0" ||
                                               type == "q8_0";
                                      });
}

Status print_module(LoadedModel& loaded) {
  const ModuleVersion& module = *loaded.modules.front();
  GRAFT_ASSIGN_OR_RETURN(const auto adapter, read_adapter(module.path, loaded.model->base()));
  const std::vector<SiteNorm> norms = site_norms(*adapter);
  GRAFT_ASSIGN_OR_RETURN(const auto tokens,
                         loaded.model->vocabulary().tokenize("The capital of France is", {}));
  if (tokens.empty()) return {};
  GRAFT_ASSIGN_OR_RETURN(const auto base, compute_logits(*loaded.engine, tokens, {}));
  GRAFT_ASSIGN_OR_RETURN(
      const auto moved,
      compute_logits(*loaded.engine, tokens, {.modules = {{module.resident.get(), 1.0F, 0}}}));
  const LogitDistance distance = logit_distance(base.front(), moved.front());
  std::printf("\nmodule     %s, rank %lld, %zu terms at %zu sites\n",
              adapter->report.format.c_str(), static_cast<long long>(adapter->report.max_rank),
              adapter->terms.size(), norms.size());
  std::printf("           moves a logit by up to %.4g, %.4g on average\n", distance.max_abs,
              distance.mean_abs);
  for (const std::string& note : adapter->report.notes)
    std::printf("note       %s\n", note.c_str());
  for (const std::string& reason : explain_no_effect(norms, 1.0F)) {
    std::printf("weak       %s\n", reason.c_str());
  }
  return {};
}

Result<bool> examine(const DoctorCommand& command, LoadedModel& loaded) {
  print_machine(command, loaded);
  print_attention(*loaded.engine);
  GRAFT_RETURN_IF_ERROR(print_step_times(*loaded.engine));
  const bool has_module = !loaded.modules.empty();
  GRAFT_ASSIGN_OR_RETURN(
      const bool company_is_harmless,
      print_company(*loaded.engine, has_module ? loaded.modules.front()->resident.get() : nullptr));
  if (has_module) GRAFT_RETURN_IF_ERROR(print_module(loaded));
  return company_is_harmless ||
         !is_promised(loaded.model->facts(), command.model.engine.deterministic);
}

}  // namespace

int run(const DoctorCommand& command) {
  auto loaded = load(command.model);
  if (!loaded) return report(loaded.error());
  const auto is_well = examine(command, *loaded);
  if (!is_well) return report(is_well.error());
  if (*is_well) return kExitOk;
  std::fprintf(stderr, "graft: a promise for these weight types does not hold on this machine\n");
  return kExitFailure;
}

}  // namespace graft::cli
