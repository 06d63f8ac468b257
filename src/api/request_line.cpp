#include "api/request_line.h"

#include <cmath>
#include <variant>
#include <vector>

namespace graft::api {
namespace {

constexpr int kClientGone = 499;
constexpr std::size_t kMaxPromptBytes = std::size_t{4} << 10;

void raise_to(std::atomic<std::int64_t>& most, double ms) {
  const std::int64_t us = std::llround(1000 * ms);
  if (us > most.load(std::memory_order_relaxed)) most.store(us, std::memory_order_relaxed);
}

double ms_of(const std::atomic<std::int64_t>& us) {
  return static_cast<double>(us.load(std::memory_order_relaxed)) / 1000;
}

}  // namespace

// The choices of an answer are computed by one engine thread, so nobody writes at the same time.
void RequestLine::add(const Finished& finished) {
  n_prompt_tokens.fetch_add(finished.n_prompt_tokens, std::memory_order_relaxed);
  n_cached_tokens.fetch_add(finished.n_cached_tokens, std::memory_order_relaxed);
  n_generated_tokens.fetch_add(finished.n_generated_tokens, std::memory_order_relaxed);
  raise_to(prepare_us, finished.timings.prepare_ms);
  raise_to(queue_us, finished.timings.queue_ms);
  raise_to(prefill_us, finished.timings.prefill_ms);
  raise_to(decode_us, finished.timings.decode_ms);
}

bool LineSink::publish(Event event) {
  if (const auto* finished = std::get_if<Finished>(&event)) line_->add(*finished);
  return sink_->publish(std::move(event));
}

void log_request(const RequestLine& line, int status) {
  if (!log_enabled(line.level)) return;
  const double total_ms =
      std::chrono::duration<double, std::milli>(RequestLine::Clock::now() - line.begin).count();
  std::vector<LogField> fields = {{"request_id", line.request_id},
                                  {"method", line.method},
                                  {"path", line.path},
                                  {"status", std::int64_t{status}},
                                  {"total_ms", total_ms}};
  const auto text = [&fields](const char* name, const std::string& value) {
    if (!value.empty()) fields.push_back({name, value});
  };
  text("tenant", line.tenant);
  text("trace_id", line.trace_id);
  text("model", line.model);
  text("modules", line.modules);
  if (!line.model.empty()) {
    fields.push_back({"prompt_tokens", line.n_prompt_tokens.load(std::memory_order_relaxed)});
    fields.push_back({"cached_tokens", line.n_cached_tokens.load(std::memory_order_relaxed)});
    fields.push_back({"generated_tokens", line.n_generated_tokens.load(std::memory_order_relaxed)});
    fields.push_back({"prepare_ms", ms_of(line.prepare_us)});
    fields.push_back({"queue_ms", ms_of(line.queue_us)});
    fields.push_back({"prefill_ms", ms_of(line.prefill_us)});
    fields.push_back({"decode_ms", ms_of(line.decode_us)});
  }
  text("prompt", line.prompt.substr(0, kMaxPromptBytes));
  log(line.level, status == kClientGone ? "request, client gone" : "request", fields);
}

}  // namespace graft::api
