#include "grafting/ops_factors.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <cstring>
#include <span>

#include "base/check.h"
#include "modules/residency/half_float.h"
#include "modules/residency/row_codec.h"

namespace graft {
namespace {

ggml_type ggml_type_of(ResidentType type) {
  switch (type) {
    case ResidentType::kF32: return GGML_TYPE_F32;
    case ResidentType::kF16: return GGML_TYPE_F16;
    case ResidentType::kBF16: return GGML_TYPE_BF16;
    case ResidentType::kQ8_0: return GGML_TYPE_Q8_0;
  }
  return GGML_TYPE_F32;
}

// Rows of B are as long as the rank, which is rarely a multiple of a Q8_0 block.
ggml_type type_of_b(const ResidentTerm& term) {
  return term.type_b == ResidentType::kQ8_0 ? GGML_TYPE_F32 : ggml_type_of(term.type_b);
}

TermFactors make_tensors(const ResidentTerm& term, ggml_context* context) {
  TermFactors made;
  const ggml_type type_a = ggml_type_of(term.type_a);
  made.a = term.site.op == SiteOp::kGetRows
               ? ggml_new_tensor_2d(context, type_a, term.rank, term.n_in)
               : ggml_new_tensor_3d(context, type_a, term.n_in, term.rank, term.n_experts);
  made.b = ggml_new_tensor_3d(context, type_of_b(term), term.rank, term.n_out, term.n_experts);
  if (term.bias != nullptr) made.bias = ggml_new_tensor_1d(context, GGML_TYPE_F32, term.n_out);
  return made;
}

// Resident B [n_experts][rank][n_out] as [n_experts][n_out][rank]: mul_mat sums over the fastest
// dimension.
std::vector<std::byte> transposed_b(const ResidentTerm& term, std::size_t value_bytes) {
  const auto rank = static_cast<std::size_t>(term.rank);
  const auto n_out = static_cast<std::size_t>(term.n_out);
  const auto n_experts = static_cast<std::size_t>(term.n_experts);
  std::vector<std::byte> out(n_experts * rank * n_out * value_bytes);
  std::vector<float> decoded(term.type_b == ResidentType::kQ8_0 ? n_out : 0);
  for (std::size_t row = 0; row < n_experts * rank; ++row) {
    const std::byte* from = term.b + row * term.row_bytes_b;
    if (!decoded.empty()) {
      decode_row(term.type_b, from, decoded);
      from = reinterpret_cast<const std::byte*>(decoded.data());
    }
    std::byte* to = out.data() + (row / rank * n_out * rank + row % rank) * value_bytes;
    for (std::size_t j = 0; j < n_out; ++j) {
      std::memcpy(to + j * rank * value_bytes, from + j * value_bytes, value_bytes);
    }
  }
  return out;
}

// Resident blocks of q8_0 as ggml's, which begin with the scale, as f16.
std::vector<std::byte> ggml_q8_blocks(std::span<const std::byte> blocks) {
  std::vector<std::byte> out(blocks.size());
  for (std::size_t at = 0; at < blocks.size(); at += kQ8BlockBytes) {
    std::uint16_t scale = 0;
    std::memcpy(&scale, blocks.data() + at + kQ8BlockValues, sizeof(scale));
    scale = f16_from_f32(f32_from_bf16(scale));  // exact (row_codec.h)
    std::memcpy(out.data() + at, &scale, sizeof(scale));
    std::memcpy(out.data() + at + sizeof(scale), blocks.data() + at, kQ8BlockValues);
  }
  return out;
}

void upload_a(const ResidentTerm& term, ggml_tensor* a) {
  const std::size_t n_bytes = ggml_nbytes(a);
  if (term.type_a != ResidentType::kQ8_0) {
    ggml_backend_tensor_set(a, term.a, 0, n_bytes);
    return;
  }
  static_assert(kQ8BlockBytes == kQ8BlockValues + sizeof(std::uint16_t));
  const std::vector<std::byte> blocks = ggml_q8_blocks({term.a, n_bytes});
  ggml_backend_tensor_set(a, blocks.data(), 0, n_bytes);
}

void upload(const ResidentTerm& term, const TermFactors& factors) {
  upload_a(term, factors.a);
  const std::vector<std::byte> b = transposed_b(term, ggml_type_size(factors.b->type));
  ggml_backend_tensor_set(factors.b, b.data(), 0, b.size());
  if (factors.bias != nullptr) {
    ggml_backend_tensor_set(factors.bias, term.bias, 0, ggml_nbytes(factors.bias));
  }
}

}  // namespace

void FreeBuffer::operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }

void OpsFactors::FreeContext::operator()(ggml_context* context) const { ggml_free(context); }

Status OpsFactors::add(const ResidentAdapter& adapter) {
  if (uploads_.count(&adapter) > 0) return {};
  const std::vector<ResidentTerm>& terms = adapter.terms();
  Upload made;
  made.tensors.reset(ggml_init({.mem_size = (3 * terms.size() + 1) * ggml_tensor_overhead(),
                                .mem_buffer = nullptr,
                                .no_alloc = true}));
  GRAFT_CHECK(made.tensors != nullptr);
  std::vector<TermFactors> factors;
  factors.reserve(terms.size());
  for (const ResidentTerm& term : terms) factors.push_back(make_tensors(term, made.tensors.get()));
  if (!terms.empty()) {
    made.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(made.tensors.get(), type_));
    if (made.buffer == nullptr) {
      return Error{ErrorCode::kResourceExhausted,
                   "no device memory for the factors of adapter " + adapter.digest(),
                   {}};
    }
    ggml_backend_buffer_set_usage(made.buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  }
  for (std::size_t i = 0; i < terms.size(); ++i) {
    upload(terms[i], factors[i]);
    made.terms.push_back(&terms[i]);
    by_term_[&terms[i]] = factors[i];
  }
  uploads_.emplace(&adapter, std::move(made));
  return {};
}

void OpsFactors::forget(const ResidentAdapter* adapter) {
  const auto found = uploads_.find(adapter);
  if (found == uploads_.end()) return;
  for (const ResidentTerm* term : found->second.terms) by_term_.erase(term);
  uploads_.erase(found);
}

}  // namespace graft
