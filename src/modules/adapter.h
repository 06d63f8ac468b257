// Adapter: a low-rank weight adapter in terms of the base model's sites, as readers deliver it and
// residency prepares it. Host memory, f32/f16/bf16, nothing kernel-specific. Immutable once built;
// shared by pointer between threads.
//
// Formula (LoRA, arXiv:2106.09685), per term: y[out_offset + o] += scale * (B (A x) + bias)[o].
// Several terms on one site add up (fused bases: q, k, v adapters on one attn_qkv weight).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "modules/site.h"

namespace graft {

enum class FactorType : std::uint8_t { kF32, kF16, kBF16 };

constexpr std::size_t bytes_per_value(FactorType type) { return type == FactorType::kF32 ? 4 : 2; }

// A dense matrix, row-major: value (row, col) stands at index row * n_cols + col.
struct FactorMatrix {
  FactorType type = FactorType::kF32;
  std::int64_t n_rows = 0;
  std::int64_t n_cols = 0;
  std::vector<std::byte> bytes;  // n_rows * n_cols * bytes_per_value(type)
};

struct LoraTerm {
  SiteKey site;
  std::int64_t n_in = 0;        // kGetRows: number of table rows (vocabulary)
  std::int64_t n_out = 0;       // outputs of this term; the site may have more
  std::int64_t out_offset = 0;  // first output of the site that this term writes
  std::int64_t rank = 0;
  std::int64_t n_experts = 1;  // kMatMulId: experts of the base; else 1
  float scale = 1.0F;          // alpha / r or alpha / sqrt(r); the request's scale multiplies it
  // kMatMul:   A [rank, n_in], B [n_out, rank].
  // kMatMulId: A [n_experts * rank, n_in], B [n_experts * n_out, rank]; expert e owns rows
  //            e * rank .. and e * n_out .. ; an expert the file leaves out has zeros.
  // kGetRows:  A [n_in, rank] (one row per token id), B [n_out, rank].
  FactorMatrix a;
  FactorMatrix b;
  std::vector<float> bias;  // [n_out], lora_bias; empty = none
};

// What became of every tensor and setting of a module's files.
struct LoadReport {
  std::string format;                // "PEFT LoRA (safetensors)", "GGUF LoRA"
  std::string base_name;             // what the author says it was trained on; may be empty
  std::vector<std::string> bound;    // file tensor -> site, one line each
  std::vector<std::string> ignored;  // file tensor: why that is right
  std::vector<std::string> notes;    // settings that matter, disagreements that do not block
  std::int64_t n_tensors = 0;        // in the files
  std::int64_t max_rank = 0;
};

struct Adapter {
  std::string digest;           // SHA-256 over the module's files in canonical order, 64 hex digits
  std::string architecture;     // of the base it was resolved against
  std::vector<LoraTerm> terms;  // never empty
  LoadReport report;

  std::uint64_t factor_bytes() const;  // sum over all terms of a, b and bias
};

}  // namespace graft
