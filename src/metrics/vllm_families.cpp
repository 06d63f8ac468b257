// The families that routers and dashboards made for vLLM read. A router takes one series per
// family, so none of these has a label by module.
#include <algorithm>
#include <string_view>

#include "metrics/exposition.h"
#include "metrics/family_list.h"

namespace graft {
namespace {

using Type = FamilyList::Type;

constexpr double kMicrosecondsPerSecond = 1e6;
// vLLM's usual block. Cells have no blocks; routers want some number to cut prompts by.
constexpr std::int64_t kBlockTokens = 16;
// A label is no place for thousands of names.
constexpr std::size_t kMaxListedModules = ModuleTable::kMaxNames;

class NameList {
 public:
  void add(std::string_view name) {
    if (n_names_++ >= kMaxListedModules) return;
    text_ += (text_.empty() ? "" : ",") + std::string(name);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::size_t n_names_ = 0;
};

// Running means ready, which the protocol's text says: a request for any of these modules starts
// without loading. vLLM lists only those with running requests.
std::string ready_modules(const ExpositionFacts& facts) {
  NameList names;
  for (const ModuleFacts& module : facts.modules) names.add(module.name);
  return names.text();
}

std::string waiting_modules(const ModuleTable& modules) {
  NameList names;
  for (const auto& [name, series] : modules.all()) {
    const bool is_module = name != ModuleTable::kBaseName && name != ModuleTable::kOtherName;
    if (is_module && series->n_waiting.load(std::memory_order_relaxed) > 0) names.add(name);
  }
  return names.text();
}

// Cached beginnings give way to requests, so their cells count as free.
double kv_usage(const ServingSnapshot& now) {
  if (now.n_cells <= 0) return 0;
  return static_cast<double>(now.n_cells - now.n_free_cells - now.n_idle_cells) /
         static_cast<double>(now.n_cells);
}

// The five families of the model server protocol.
void add_protocol(FamilyList& list, const ServingSnapshot& now, const ModuleTable& modules,
                  const ExpositionFacts& facts) {
  const MetricLabels model = {{"model_name", facts.model_name}};
  list.family("vllm:num_requests_running", Type::Gauge, "Requests that are being computed")
      .value(now.n_running, model);
  list.family("vllm:num_requests_waiting", Type::Gauge, "Requests in the queue")
      .value(now.n_waiting, model);
  list.family("vllm:kv_cache_usage_perc", Type::Gauge, "Used part of the key/value memory, 0 to 1")
      .value(kv_usage(now), model);
  list.family("vllm:lora_requests_info", Type::Gauge, "Unix time; the labels say which adapters")
      .value(facts.unix_time_s, {{"max_lora", std::to_string(facts.max_modules)},
                                 {"running_lora_adapters", ready_modules(facts)},
                                 {"waiting_lora_adapters", waiting_modules(modules)}});
  list.family("vllm:cache_config_info", Type::Gauge, "1; the labels give the cache's geometry")
      .value(1.0, {{"block_size", std::to_string(kBlockTokens)},
                   {"num_gpu_blocks", std::to_string(now.n_cells / kBlockTokens)}});
}

// What was not found was computed.
std::int64_t prefix_queries(const ServingSnapshot& now) {
  return now.n_prompt_tokens + now.n_prefix_hit_tokens;
}

void add_old_names(FamilyList& list, const ServingSnapshot& now, const MetricLabels& model) {
  list.family("vllm:gpu_cache_usage_perc", Type::Gauge, "Old name of kv_cache_usage_perc")
      .value(kv_usage(now), model);
  list.family("vllm:gpu_prefix_cache_queries_total", Type::Counter,
              "Old name of prefix_cache_queries_total")
      .value(prefix_queries(now), model);
  list.family("vllm:gpu_prefix_cache_hits_total", Type::Counter,
              "Old name of prefix_cache_hits_total")
      .value(now.n_prefix_hit_tokens, model);
}

void add_latencies(FamilyList& list, const ServingSnapshot& now, const MetricLabels& model) {
  const auto seconds = [&](const char* name, const char* help, const HistogramSnapshot& times) {
    list.family(name, Type::Histogram, help).histogram(times, kMicrosecondsPerSecond, model);
  };
  seconds("vllm:time_to_first_token_seconds", "From submission to the first token",
          now.first_token_us);
  seconds("vllm:inter_token_latency_seconds", "Between tokens of one answer", now.inter_token_us);
  seconds("vllm:e2e_request_latency_seconds", "From submission to the end", now.request_us);
  seconds("vllm:request_queue_time_seconds", "From submission to admission", now.queue_us);
  seconds("vllm:request_prefill_time_seconds", "From admission to the first token", now.prefill_us);
  seconds("vllm:request_decode_time_seconds", "From the first token to the last", now.decode_us);
  seconds("vllm:request_inference_time_seconds", "From admission to the last token",
          now.inference_us);
}

void add_tokens(FamilyList& list, const ServingSnapshot& now, const MetricLabels& model) {
  const auto counter = [&](const char* name, const char* help, std::int64_t value) {
    list.family(name, Type::Counter, help).value(value, model);
  };
  counter("vllm:prompt_tokens_total", "Prompt tokens computed", now.n_prompt_tokens);
  counter("vllm:generation_tokens_total", "Tokens generated", now.n_generated_tokens);
  counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up", prefix_queries(now));
  counter("vllm:prefix_cache_hits_total", "Prompt tokens found", now.n_prefix_hit_tokens);
  counter("vllm:num_preemptions_total", "Requests put back into the queue", now.n_preemptions);
  const auto tokens = [&](const char* name, const char* help, const HistogramSnapshot& counts) {
    list.family(name, Type::Histogram, help).histogram(counts, 1, model);
  };
  tokens("vllm:request_prompt_tokens", "Prompt tokens of a request", now.prompt_tokens);
  tokens("vllm:request_generation_tokens", "Tokens generated by a request", now.generated_tokens);
  tokens("vllm:iteration_tokens_total", "Tokens computed by a step", now.step_tokens);
}

}  // namespace

void add_vllm_families(FamilyList& list, const ServingSnapshot& now, const ModuleTable& modules,
                       const ExpositionFacts& facts) {
  const MetricLabels model = {{"model_name", facts.model_name}};
  add_protocol(list, now, modules, facts);
  add_latencies(list, now, model);
  add_tokens(list, now, model);
  const auto finished = [&model](const char* reason) {
    MetricLabels labels = model;
    labels.push_back({"finished_reason", reason});
    return labels;
  };
  list.family("vllm:request_success_total", Type::Counter, "Requests that ended well")
      .value(now.n_stopped, finished("stop"))
      .value(now.n_length, finished("length"))
      .value(now.n_cancelled, finished("abort"));
  if (facts.old_gpu_names) add_old_names(list, now, model);
}

}  // namespace graft
