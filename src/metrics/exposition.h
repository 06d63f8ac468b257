// exposition(): all metrics of a server in Prometheus' text format, version 0.0.4. Own families are
// called graft_*; beside them stand those `vllm:` families that routers and dashboards for vLLM
// read, one series each, with the base as `model_name`.
//
// Any thread; reads atomics and the values it is given, and never waits for the engine thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metrics/http_counters.h"
#include "metrics/serving_counters.h"

namespace graft {

// A module that is ready to serve.
struct ModuleFacts {
  std::string name;
  std::string version;  // the first digits of its digest
  std::int64_t resident_bytes = 0;
  double load_seconds = 0;
};

struct ExpositionFacts {
  std::string model_name;
  std::vector<ModuleFacts> modules;
  std::int64_t max_modules = 0;     // that may be ready at once
  std::int64_t n_loads = 0;         // of modules, while serving
  std::int64_t n_failed_loads = 0;  // of these
  std::int64_t unix_time_s = 0;     // now
  bool old_gpu_names = false;       // also vLLM's names of before 2025
};

// The type of the answer that carries it.
inline constexpr const char* kExpositionType = "text/plain; version=0.0.4; charset=utf-8";

std::string exposition(const ServingCounters& serving, const HttpCounters& http,
                       const ExpositionFacts& facts);

}  // namespace graft
