// ModuleTable: the counters of each module, by name. Bounded: the first 200 names get a series of
// their own, all later ones share the one called "other". A series lives as long as the table, also
// after its module is gone, because a counter must not vanish.
//
// Thread-safe. Names are looked up when a request comes in, on the thread that brings it; the
// engine thread only writes the atomics of series that requests carry, and never waits here.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "metrics/atomic_histogram.h"
#include "metrics/buckets.h"

namespace graft {

// Of a module, or of the base alone. A request with several modules counts for each of them.
struct ModuleSeries {
  using Counter = std::atomic<std::int64_t>;

  Counter n_running{0};  // gauges
  Counter n_waiting{0};
  Counter n_stopped{0};
  Counter n_length{0};  // ended by a limit of tokens
  Counter n_cancelled{0};
  Counter n_failed{0};
  Counter n_prompt_tokens{0};
  Counter n_cached_tokens{0};  // of the prompts
  Counter n_generated_tokens{0};
  AtomicHistogram first_token_us{kModuleTimeBoundsUs};
  AtomicHistogram inter_token_us{kModuleTimeBoundsUs};
};

class ModuleTable {
 public:
  static constexpr std::size_t kMaxNames = 200;
  static constexpr const char* kBaseName = "base";  // no module can have this name
  static constexpr const char* kOtherName = "other";

  // The series of that name, or the shared one.
  ModuleSeries& series_of(const std::string& name) GRAFT_EXCLUDES(mutex_);

  // Those that were asked for, by name. The pointers are valid as long as the table.
  std::vector<std::pair<std::string, const ModuleSeries*>> all() const GRAFT_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<ModuleSeries>> series_ GRAFT_GUARDED_BY(mutex_);
};

}  // namespace graft
