// Graft's own families: base units, no colons, counters end in _total.
#include <algorithm>
#include <span>

#include "metrics/exposition.h"
#include "metrics/family_list.h"

namespace graft {
namespace {

using Type = FamilyList::Type;

constexpr double kMicrosecondsPerSecond = 1e6;

void add_state(FamilyList& list, const ServingSnapshot& now) {
  list.family("graft_healthy", Type::Gauge, "1 while the engine computes, 0 after failed steps")
      .value(now.healthy ? 1.0 : 0.0);
  list.family("graft_requests_running", Type::Gauge, "Requests that are being computed")
      .value(now.n_running);
  list.family("graft_requests_waiting", Type::Gauge, "Requests in the queue").value(now.n_waiting);
  list.family("graft_kv_cells", Type::Gauge, "Cells of the key/value memory, one per token")
      .value(now.n_cells);
  list.family("graft_kv_cells_free", Type::Gauge, "Cells that nobody uses").value(now.n_free_cells);
}

void add_counts(FamilyList& list, const ServingSnapshot& now) {
  list.family("graft_requests_submitted_total", Type::Counter, "Requests taken into the queue")
      .value(now.n_submitted);
  list.family("graft_requests_rejected_total", Type::Counter,
              "Requests not taken: full queue, shutdown or wrong")
      .value(now.n_rejected);
  list.family("graft_requests_total", Type::Counter, "Requests that are over, by how they ended")
      .value(now.n_stopped, {{"outcome", "stop"}})
      .value(now.n_length, {{"outcome", "length"}})
      .value(now.n_cancelled, {{"outcome", "cancelled"}})
      .value(now.n_failed, {{"outcome", "failed"}});
  list.family("graft_prompt_tokens_total", Type::Counter,
              "Prompt tokens computed, again after a preemption")
      .value(now.n_prompt_tokens);
  list.family("graft_generated_tokens_total", Type::Counter, "Tokens generated")
      .value(now.n_generated_tokens);
  list.family("graft_preemptions_total", Type::Counter, "Running requests put back into the queue")
      .value(now.n_preemptions);
  list.family("graft_failed_steps_total", Type::Counter, "Steps whose computation failed")
      .value(now.n_failed_steps);
}

void add_prefix_cache(FamilyList& list, const ServingSnapshot& now) {
  const MetricLabels hot = {{"tier", "hot"}};
  const MetricLabels warm = {{"tier", "warm"}};
  list.family("graft_prefix_hits_total", Type::Counter,
              "Requests that found their beginning, by the slowest tier it came from")
      .value(now.n_prefix_hot_hits, hot)
      .value(now.n_prefix_warm_hits, warm);
  list.family("graft_prefix_misses_total", Type::Counter, "Requests that found nothing")
      .value(now.n_prefix_misses);
  list.family("graft_prefix_cached_tokens_total", Type::Counter,
              "Prompt tokens that were found and not computed")
      .value(now.n_prefix_hit_tokens);
  list.family("graft_prefix_evictions_total", Type::Counter, "Beginnings let go, by tier")
      .value(now.n_prefix_hot_evictions, hot)
      .value(now.n_prefix_warm_evictions, warm);
  list.family("graft_prefix_bytes", Type::Gauge, "Memory of cached beginnings, by tier")
      .value(now.n_prefix_hot_bytes, hot)
      .value(now.n_prefix_warm_bytes, warm);
}

void add_histograms(FamilyList& list, const ServingSnapshot& now) {
  list.family("graft_step_seconds", Type::Histogram, "Time of a step of the engine")
      .histogram(now.step_time_us, kMicrosecondsPerSecond);
  list.family("graft_step_tokens", Type::Histogram, "Tokens computed by a step")
      .histogram(now.step_tokens, 1);
  list.family("graft_first_token_seconds", Type::Histogram, "From submission to the first token")
      .histogram(now.first_token_us, kMicrosecondsPerSecond);
  list.family("graft_inter_token_seconds", Type::Histogram, "Between tokens of one answer")
      .histogram(now.inter_token_us, kMicrosecondsPerSecond);
  list.family("graft_request_seconds", Type::Histogram, "From submission to the end")
      .histogram(now.request_us, kMicrosecondsPerSecond);
  list.family("graft_prepare_seconds", Type::Histogram,
              "From the last byte of a request to its submission, tokenised")
      .histogram(now.prepare_us, kMicrosecondsPerSecond);
  list.family("graft_queue_seconds", Type::Histogram, "From submission to admission")
      .histogram(now.queue_us, kMicrosecondsPerSecond);
}

MetricLabels of_module(const std::string& name) { return {{"module", name}}; }

MetricLabels of_module(const std::string& name, const char* label, std::string value) {
  return {{"module", name}, {label, std::move(value)}};
}

// What the modules that are ready hold. Those beyond the last label are taken together.
void add_residents(FamilyList& list, const ExpositionFacts& facts) {
  const std::size_t n_named = std::min(facts.modules.size(), ModuleTable::kMaxNames);
  const auto named = std::span(facts.modules).first(n_named);
  list.family("graft_module_resident", Type::Gauge, "1 for each module that is ready to serve");
  for (const ModuleFacts& module : named) {
    list.value(1.0, of_module(module.name, "version", module.version));
  }
  list.family("graft_module_load_seconds", Type::Gauge, "What loading a module took");
  for (const ModuleFacts& module : named) list.value(module.load_seconds, of_module(module.name));
  list.family("graft_module_loads_total", Type::Counter, "Modules loaded while serving")
      .value(facts.n_loads - facts.n_failed_loads, {{"result", "ok"}})
      .value(facts.n_failed_loads, {{"result", "failed"}});
  list.family("graft_module_resident_bytes", Type::Gauge, "Memory that a module takes");
  for (const ModuleFacts& module : named) list.value(module.resident_bytes, of_module(module.name));
  std::int64_t other_bytes = 0;
  for (const ModuleFacts& module : std::span(facts.modules).subspan(n_named)) {
    other_bytes += module.resident_bytes;
  }
  if (other_bytes > 0) list.value(other_bytes, of_module(ModuleTable::kOtherName));
}

std::int64_t read(const ModuleSeries::Counter& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

void add_graft_families(FamilyList& list, const ServingSnapshot& now,
                        const ExpositionFacts& facts) {
  list.family("graft_build_info", Type::Gauge, "1; the version and the base model are labels")
      .value(1.0, {{"version", GRAFT_VERSION}, {"model", facts.model_name}});
  add_state(list, now);
  add_counts(list, now);
  add_prefix_cache(list, now);
  add_histograms(list, now);
}

void add_http_families(FamilyList& list, const HttpCounters& http) {
  list.family("graft_http_answers_total", Type::Counter,
              "Answers by HTTP status; 499: the client went first");
  for (std::size_t i = 0; i < HttpCounters::kStatuses.size(); ++i) {
    if (http.n_answers(i) == 0) continue;
    list.value(http.n_answers(i), {{"status", std::to_string(HttpCounters::kStatuses[i])}});
  }
  list.value(http.n_answers(HttpCounters::kStatuses.size()), {{"status", "other"}});
}

// Module names count as labels only as far as ModuleTable has room for them.
void add_module_families(FamilyList& list, const ModuleTable& modules,
                         const ExpositionFacts& facts) {
  add_residents(list, facts);
  const auto all = modules.all();
  list.family("graft_module_requests_running", Type::Gauge, "Requests being computed, by module");
  for (const auto& [name, series] : all) list.value(read(series->n_running), of_module(name));
  list.family("graft_module_requests_waiting", Type::Gauge, "Requests in the queue, by module");
  for (const auto& [name, series] : all) list.value(read(series->n_waiting), of_module(name));
  list.family("graft_module_requests_total", Type::Counter, "Requests that are over, by module");
  for (const auto& [name, series] : all) {
    list.value(read(series->n_stopped), of_module(name, "outcome", "stop"));
    list.value(read(series->n_length), of_module(name, "outcome", "length"));
    list.value(read(series->n_cancelled), of_module(name, "outcome", "cancelled"));
  }
  list.family("graft_module_errors_total", Type::Counter, "Requests that failed, by module");
  for (const auto& [name, series] : all) list.value(read(series->n_failed), of_module(name));
  list.family("graft_module_tokens_total", Type::Counter,
              "Tokens by module: of prompts, of those from the prefix cache, generated");
  for (const auto& [name, series] : all) {
    list.value(read(series->n_prompt_tokens), of_module(name, "kind", "prompt"));
    list.value(read(series->n_cached_tokens), of_module(name, "kind", "cached"));
    list.value(read(series->n_generated_tokens), of_module(name, "kind", "generated"));
  }
  list.family("graft_module_first_token_seconds", Type::Histogram,
              "From submission to the first token, by module");
  for (const auto& [name, series] : all) {
    list.histogram(series->first_token_us.snapshot(), kMicrosecondsPerSecond, of_module(name));
  }
  list.family("graft_module_inter_token_seconds", Type::Histogram,
              "Between tokens of one answer, by module");
  for (const auto& [name, series] : all) {
    list.histogram(series->inter_token_us.snapshot(), kMicrosecondsPerSecond, of_module(name));
  }
}

}  // namespace graft
