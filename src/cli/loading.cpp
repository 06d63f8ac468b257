#include "cli/loading.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "cli/progress_line.h"
#include "cli/stop_signal.h"
#include "grafting/grafter.h"
#include "modules/store/load_module.h"

namespace graft::cli {
namespace {

constexpr std::int32_t kManyRows = 64;

Error stopped() { return {ErrorCode::kCancelled, "stopped while loading", {}}; }

Result<std::unique_ptr<Model>> load_base(const ModelFlags& flags) {
  ProgressLine progress("loading " + std::filesystem::path(flags.path).filename().string());
  ModelOptions options;
  options.path = flags.path;
  options.use_mmap = flags.use_mmap;
  // Rows of repacked weights cannot be multiplied one by one.
  options.use_extra_buffers = !flags.engine.deterministic;
  if (flags.use_gpu) {
    GRAFT_ASSIGN_OR_RETURN(options.device, grafting_gpu_device());
  }
  options.on_progress = [&progress](float fraction) {
    progress.update(fraction);
    return !stop_requested();
  };
  return Model::load(options);
}

// Factors in shared pages are read here; the first request should not pay for that.
Status warm_up_rows(Engine& engine, const ModuleVersion& module, std::int32_t n_rows) {
  const std::optional<std::int32_t> sequence = engine.acquire_sequence();
  GRAFT_CHECK(sequence.has_value());
  StepPlan plan;
  plan.sets = {{{module.resident.get(), 1.0F, 0}}};
  for (std::int32_t i = 0; i < n_rows; ++i) {
    plan.rows.push_back(
        {.token = 0, .position = i, .sequence = *sequence, .is_output = i + 1 == n_rows, .set = 0});
  }
  const StepOutcome outcome = engine.step(plan);
  engine.release_sequence(*sequence);
  if (outcome.kind == StepOutcome::kDone) return {};
  return about_module({module.name, module.path},
                      internal_error("a first step with it failed: " + outcome.message));
}

Result<std::shared_ptr<const ModuleVersion>> load_one(const ModuleSource& source, Engine& engine,
                                                      Precision precision) {
  GRAFT_ASSIGN_OR_RETURN(auto module, load_module(source, engine.model().base(), precision));
  if (Status fits = engine.grafter().check_attachable(*module->resident); !fits) {
    return about_module(source, std::move(fits).error());
  }
  GRAFT_RETURN_IF_ERROR(warm_up(engine, *module));
  return module;
}

}  // namespace

Status warm_up(Engine& engine, const ModuleVersion& module) {
  GRAFT_RETURN_IF_ERROR(warm_up_rows(engine, module, 1));
  return warm_up_rows(engine, module, std::min(kManyRows, engine.max_rows()));
}

Result<LoadedModel> load(const ModelFlags& flags) {
  LoadedModel loaded;
  GRAFT_ASSIGN_OR_RETURN(loaded.model, load_base(flags));
  if (stop_requested()) return stopped();
  GRAFT_ASSIGN_OR_RETURN(loaded.engine, Engine::create(*loaded.model, flags.engine));
  ProgressLine progress("loading modules");
  for (const ModuleFlag& flag : flags.modules) {
    if (stop_requested()) return stopped();
    GRAFT_ASSIGN_OR_RETURN(auto module, load_one(flag.source, *loaded.engine, flags.precision));
    loaded.modules.push_back(std::move(module));
    progress.update(static_cast<float>(loaded.modules.size()) /
                    static_cast<float>(flags.modules.size()));
  }
  return loaded;
}

int report(const Error& error) {
  std::string line = error.message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fprintf(stderr, "graft: %s\n", line.c_str());
  return error.code == ErrorCode::kCancelled ? kExitOk : kExitFailure;
}

}  // namespace graft::cli
