// RawContext: a llama_context with or without a grafter, for tests and benchmarks that look below
// the engine. Not for several threads.
#pragma once

#include <llama.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "grafting/grafter.h"

namespace graft::testing {

// The folder that scripts/setup.sh fills with models.
inline std::string cached_model(const std::string& file) {
  const char* cache = std::getenv("GRAFT_CACHE");
  const char* home = std::getenv("HOME");
  const std::string root = cache != nullptr ? cache : std::string(home) + "/.cache/graft";
  return root + "/models/" + file;
}

struct FreeModel {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
using ModelPointer = std::unique_ptr<llama_model, FreeModel>;

// `repack`: llama.cpp may store weights in a layout of its own, which deterministic matmuls cannot
// read.
inline ModelPointer load_model(const std::string& path, bool repack = true) {
  register_grafting_device();
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.use_extra_bufts = repack;
  ModelPointer model(llama_model_load_from_file(path.c_str(), params));
  if (model == nullptr) {
    throw std::runtime_error("cannot load " + path + "; run scripts/setup.sh first");
  }
  return model;
}

// Threads of the compute pool in tests: 2, or GRAFT_TEST_THREADS. A pool that shares its cores with
// other work waits for whole time slices at every barrier.
inline std::int32_t test_threads() {
  const char* chosen = std::getenv("GRAFT_TEST_THREADS");
  return chosen != nullptr && *chosen >= '1' && *chosen <= '9' ? *chosen - '0' : 2;
}

struct RawOptions {
  std::uint32_t n_ctx = 4096;
  std::uint32_t n_batch = 512;
  std::uint32_t n_seqs = 8;
  std::int32_t n_threads = test_threads();
  std::uint32_t poll = 50;
  bool grafter = true;  // false: plain libllama
  bool attention = true;
  bool deterministic = false;
  EmitterKind emitter = EmitterKind::kFused;
  ggml_backend_device* device = nullptr;  // that the model was loaded on
  bool unified = true;
  bool flash_attention = true;
  ggml_type cache_type = GGML_TYPE_F16;
};

class RawContext {
 public:
  RawContext(llama_model* model, const RawOptions& options) : options_(options) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = options.n_ctx;
    params.n_batch = options.n_batch;
    params.n_ubatch = options.n_batch;
    params.n_seq_max = options.n_seqs;
    params.n_threads = options.n_threads;
    params.n_threads_batch = options.n_threads;
    params.kv_unified = options.unified;
    params.type_k = options.cache_type;
    params.type_v = options.cache_type;
    params.flash_attn_type =
        options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    if (options.grafter) {
      grafter_ = std::make_unique<Grafter>(GrafterOptions{.n_threads = options.n_threads,
                                                          .poll = options.poll,
                                                          .attention = options.attention,
                                                          .deterministic = options.deterministic,
                                                          .device = options.device,
                                                          .emitter = options.emitter});
      const Grafter::Binding binding(*grafter_);
      context_ = llama_init_from_model(model, params);
    } else {
      context_ = llama_init_from_model(model, params);
      ggml_threadpool_params pool = ggml_threadpool_params_default(options.n_threads);
      pool.poll = options.poll;
      pool_ = ggml_threadpool_new(&pool);
      if (context_ != nullptr) llama_attach_threadpool(context_, pool_, pool_);
    }
    if (context_ == nullptr) throw std::runtime_error("cannot create a context");
    n_vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model));
    batch_ = llama_batch_init(static_cast<std::int32_t>(options.n_batch), 0, 1);
  }
  ~RawContext() {
    llama_batch_free(batch_);
    llama_free(context_);
    if (pool_ != nullptr) ggml_threadpool_free(pool_);
  }
  RawContext(const RawContext&) = delete;
  RawContext& operator=(const RawContext&) = delete;

  llama_context* get() { return context_; }
  Grafter& grafter() { return *grafter_; }
  std::int32_t n_vocab() const { return n_vocab_; }

  // Runs the plan; the return value of llama_decode.
  int decode(const StepPlan& plan) {
    batch_.n_tokens = static_cast<std::int32_t>(plan.rows.size());
    for (std::size_t i = 0; i < plan.rows.size(); ++i) {
      const PlannedRow& row = plan.rows[i];
      batch_.token[i] = row.token;
      batch_.pos[i] = row.position;
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = row.sequence;
      batch_.logits[i] = row.is_output ? 1 : 0;
    }
    if (grafter_ != nullptr) grafter_->begin_step(plan);
    const int status = llama_decode(context_, batch_);
    if (grafter_ != nullptr) grafter_->end_step();
    return status;
  }

  // Logits of row `row` of the last batch, which must have been an output row.
  std::vector<float> logits(std::size_t row) {
    const float* values = llama_get_logits_ith(context_, static_cast<std::int32_t>(row));
    if (values == nullptr) throw std::runtime_error("the row has no logits");
    return {values, values + n_vocab_};
  }

  void clear() { llama_memory_clear(llama_get_memory(context_), true); }
  void remove(std::int32_t sequence, std::int32_t from = -1) {
    llama_memory_seq_rm(llama_get_memory(context_), sequence, from, -1);
  }

 private:
  RawOptions options_;
  std::unique_ptr<Grafter> grafter_;
  llama_context* context_ = nullptr;
  ggml_threadpool* pool_ = nullptr;
  std::int32_t n_vocab_ = 0;
  llama_batch batch_ = {};
};

inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = a.size() == b.size() ? 0.0 : 1e30;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

}  // namespace graft::testing
