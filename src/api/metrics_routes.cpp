// /metrics and /load: what monitoring and routers read. They read atomics and an immutable
// snapshot; the engine thread notices nothing.
#include <algorithm>
#include <chrono>

#include "api/routes.h"
#include "metrics/exposition.h"
#include "router/resolve.h"

namespace graft::api {
namespace {

constexpr std::size_t kVersionDigits = 12;

std::int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

ExpositionFacts facts_of(const ServiceParts& parts) {
  ExpositionFacts facts;
  facts.unix_time_s = unix_seconds();
  facts.old_gpu_names = parts.observation.old_gpu_names;
  const auto registry = parts.registry.get();
  facts.model_name = registry->base_names.front();
  for (const auto& module : registry->modules) {
    const std::size_t n_bytes = module->resident == nullptr ? 0 : module->resident->arena_bytes();
    facts.modules.push_back({module->name, digest_of(*module).substr(0, kVersionDigits),
                             static_cast<std::int64_t>(n_bytes), module->load_seconds});
  }
  if (parts.modules != nullptr) {
    const LoadCounts loads = parts.modules->counts();
    facts.n_loads = loads.n_loads;
    facts.n_failed_loads = loads.n_failed;
    facts.max_modules = parts.modules->max_modules();
  }
  if (facts.max_modules > 0) return facts;
  facts.max_modules = static_cast<std::int64_t>(
      std::max(std::size_t{ModuleTable::kMaxNames}, facts.modules.size()));
  return facts;
}

// Counters of a server that has no model yet.
std::string exposition_while_loading(const HttpCounters& http) {
  ExpositionFacts facts;
  facts.unix_time_s = unix_seconds();
  return exposition(ServingCounters(), http, facts);
}

}  // namespace

Answer answer_metrics(const RouteCall& call) {
  HttpResponse response;
  response.headers = {{"content-type", kExpositionType}};
  if (call.service.state() == Service::State::kLoading ||
      call.service.parts().observation.counters == nullptr) {
    response.body = exposition_while_loading(call.service.http_counters());
  } else {
    const ServiceParts& parts = call.service.parts();
    response.body =
        exposition(*parts.observation.counters, call.service.http_counters(), facts_of(parts));
  }
  return response;
}

Answer answer_load(const RouteCall& call) {
  std::int64_t n_requests = 0;
  if (call.service.state() != Service::State::kLoading &&
      call.service.parts().observation.counters != nullptr) {
    const ServingCounters& counters = *call.service.parts().observation.counters;
    n_requests = counters.n_running.load(std::memory_order_relaxed) +
                 counters.n_waiting.load(std::memory_order_relaxed);
  }
  HttpResponse response;
  response.headers = {{"content-type", "application/json"}};
  response.body = R"({"server_load":)" + std::to_string(n_requests) + "}";
  return response;
}

}  // namespace graft::api
