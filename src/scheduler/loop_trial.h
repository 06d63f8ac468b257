// LoopTrial: tries a module in the running loop, as a request like any other, so that the streams
// beside it are neither stopped nor slowed by more than a few rows. The first steps also bring the
// factors into the caches of the processors.
//
// When nothing runs, a step of up to 64 rows is tried and then one of a single row; beside running
// streams a few rows are enough. When no sequence becomes free for a while, the module is announced
// without a trial, with a warning: its shapes are checked in any case.
// Thread-safe. Borrows the loop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "modules/store/module_trial.h"
#include "scheduler/loop.h"

namespace graft {

struct TrialOptions {
  std::int32_t max_rows = 64;  // of the first step; at most what a step of the engine takes
  std::int32_t rows_beside_streams = 4;
  std::chrono::milliseconds max_wait{5000};  // for a sequence
};

class LoopTrial final : public ModuleTrial {
 public:
  explicit LoopTrial(Loop& loop, const TrialOptions& options = {})
      : loop_(loop), options_(options) {}

  // Errors: those of Loop::submit(), among them what does not fit the model's sites; what the
  // trial's steps failed with.
  Status try_out(const std::shared_ptr<const ModuleVersion>& version) override;

 private:
  Loop& loop_;
  const TrialOptions options_;
  std::atomic<std::uint64_t> n_trials_{0};
};

}  // namespace graft
