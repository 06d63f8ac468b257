// OpsFactors: the factors of adapters as ggml tensors in a device's memory, for OpsStep. Uploaded
// when an adapter first takes part in a step, on the thread that calls llama_decode, which waits
// for it; freed by forget(). This is memory beside the adapter's own arena, about as large again.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "modules/residency/resident_adapter.h"

struct ggml_backend_buffer;
struct ggml_backend_buffer_type;
struct ggml_context;
struct ggml_tensor;

namespace graft {

struct FreeBuffer {
  void operator()(ggml_backend_buffer* buffer) const;
};
using BufferPointer = std::unique_ptr<ggml_backend_buffer, FreeBuffer>;

// Shapes in ggml's order, fastest dimension first.
struct TermFactors {
  ggml_tensor* a = nullptr;     // resident type [n_in, rank, n_experts]; kGetRows: [rank, n_in]
  ggml_tensor* b = nullptr;     // [rank, n_out, n_experts]; resident type, but F32 for Q8_0
  ggml_tensor* bias = nullptr;  // F32 [n_out] or null
};

class OpsFactors {
 public:
  // `type` allocates on the device; it lives as long as the process.
  explicit OpsFactors(ggml_backend_buffer_type* type) : type_(type) {}

  // Uploads the factors unless they are there. Errors: kResourceExhausted.
  Status add(const ResidentAdapter& adapter);

  // Requires: the adapter of the term was added.
  const TermFactors& of(const ResidentTerm& term) const { return by_term_.at(&term); }

  void forget(const ResidentAdapter* adapter);

 private:
  struct FreeContext {
    void operator()(ggml_context* context) const;
  };
  struct Upload {
    std::unique_ptr<ggml_context, FreeContext> tensors;
    BufferPointer buffer;
    std::vector<const ResidentTerm*> terms;  // keys only; never read through
  };

  ggml_backend_buffer_type* type_;
  std::unordered_map<const ResidentAdapter*, Upload> uploads_;
  std::unordered_map<const ResidentTerm*, TermFactors> by_term_;
};

}  // namespace graft
