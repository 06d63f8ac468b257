// The options' limits: what libllama would answer with an abort is refused here with a message.
#include "engine/engine_options.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

namespace graft {

namespace {

constexpr std::int32_t kCellStep = 256;  // libllama rounds its memory up to this
constexpr std::int32_t kMaxCells = 1 << 24;
constexpr std::int32_t kMaxThreads = 512;  // ggml's limit
constexpr std::int32_t kMaxRows = 1 << 16;

Status check_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(std::string(name) + " is " + std::to_string(value) + "; it must be " +
                          std::to_string(low) + " to " + std::to_string(high));
}

std::int32_t count_processors() {
  const auto n = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  return std::clamp(n, 1, kMaxThreads);
}

std::uint64_t physical_memory_bytes() {
  const long n_pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (n_pages <= 0 || page_bytes <= 0) return 0;
  return static_cast<std::uint64_t>(n_pages) * static_cast<std::uint64_t>(page_bytes);
}

// Linux promises memory that it does not have, so a too large memory would end the process later.
Status check_memory(const EngineOptions& options, const BaseModel& base) {
  const double bytes = kv_bytes_per_cell(base, options.kv_type) * options.n_ctx;
  const auto available = static_cast<double>(physical_memory_bytes());
  if (available == 0 || bytes <= available) return {};
  constexpr double kMebibyte = 1024 * 1024;
  return invalid_argument(
      "a context of " + std::to_string(options.n_ctx) + " cells needs about " +
      std::to_string(static_cast<std::int64_t>(bytes / kMebibyte)) + " MiB; this machine has " +
      std::to_string(static_cast<std::int64_t>(available / kMebibyte)) + " MiB of memory");
}

}  // namespace

double kv_bytes_per_cell(const BaseModel& base, KvType type) {
  const double bytes_per_value = type == KvType::kF32 ? 4 : type == KvType::kF16 ? 2 : 34.0 / 32;
  const auto n_values = static_cast<double>((base.head_dim_k + base.head_dim_v) * base.n_heads_kv);
  return bytes_per_value * n_values * static_cast<double>(base.n_layers);
}

Result<EngineOptions> check_options(const EngineOptions& given, const BaseModel& base) {
  EngineOptions options = given;
  if (options.n_threads == 0) options.n_threads = count_processors();
  GRAFT_RETURN_IF_ERROR(check_range("the number of threads", options.n_threads, 1, kMaxThreads));
  GRAFT_RETURN_IF_ERROR(check_range("the number of sequences", options.max_seqs, 1, kMaxSequences));
  GRAFT_RETURN_IF_ERROR(check_range("the context size", options.n_ctx, 1, kMaxCells));
  GRAFT_RETURN_IF_ERROR(check_range("poll", options.poll, 0, 100));
  if (options.deterministic && !options.attention) {
    return invalid_argument("deterministic computation needs Graft's own attention step");
  }
  // libllama cuts the batch to the context before it rounds the context up.
  options.n_ctx = (options.n_ctx + kCellStep - 1) / kCellStep * kCellStep;
  options.n_batch = std::min(options.n_batch, options.n_ctx);
  GRAFT_RETURN_IF_ERROR(
      check_range("the number of rows per step", options.n_batch, options.max_seqs, kMaxRows));
  GRAFT_RETURN_IF_ERROR(
      check_range("the number of reported rows", options.max_reported_rows, 1, kMaxRows));
  options.max_reported_rows = std::min(options.max_reported_rows, options.n_batch);
  // libllama counts the scratch sequence too, and aborts when a batch is smaller than that count.
  options.n_batch = std::max(options.n_batch, options.max_seqs + 1);
  if (options.kv_type == KvType::kQ8_0 &&
      (base.head_dim_k % 32 != 0 || base.head_dim_v % 32 != 0)) {
    return invalid_argument(
        "q8_0 keys and values need head sizes that are multiples of 32; this "
        "model's are " +
        std::to_string(base.head_dim_k) + " and " + std::to_string(base.head_dim_v));
  }
  GRAFT_RETURN_IF_ERROR(check_memory(options, base));
  return options;
}

}  // namespace graft
