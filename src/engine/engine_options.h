// EngineOptions: how a context is made, and the limits that keep libllama from aborting. Plain
// values; any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "grafting/grafter.h"
#include "modules/base_model.h"

namespace graft {

enum class KvType : std::uint8_t { kF16, kF32, kQ8_0 };

inline constexpr std::int32_t kMaxSequences = 128;  // more cost too much in libllama's mask

struct EngineOptions {
  std::int32_t n_ctx = 4096;      // KV cells shared by all sequences; rounded up to 256
  std::int32_t n_seq_tokens = 0;  // limit of one sequence; 0 = none but the model's
  std::int32_t max_seqs = 16;     // sequences alive at once, 1 .. kMaxSequences
  // Rows of one step at most; >= max_seqs (exactly that becomes one more), cut to n_ctx.
  std::int32_t n_batch = 512;
  std::int32_t n_threads = 0;  // of the compute pool; 0 = one per processor
  // Rows of one step whose logits or states are wanted for other things than the next token (scores
  // of prompts, embeddings); each takes n_vocab floats. Cut to n_batch.
  std::int32_t max_reported_rows = 64;
  std::uint32_t poll = 50;  // see GrafterOptions
  KvType kv_type = KvType::kF16;
  bool attention = true;  // our attention step instead of ggml's
  // Bits of a row never depend on its company, for every weight type. Slow in prefill. Needs a
  // model loaded with use_extra_buffers = false, and `attention`.
  bool deterministic = false;
};

// The options as the context will have them (rounded, defaults filled in), or which one is wrong.
Result<EngineOptions> check_options(const EngineOptions& given, const BaseModel& base);

// Keys and values of one position in all layers.
double kv_bytes_per_cell(const BaseModel& base, KvType type);

}  // namespace graft
