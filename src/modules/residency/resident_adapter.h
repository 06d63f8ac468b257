// ResidentAdapter: an adapter in kernel layout, ready for the fused kernel. Built by a loader
// thread, immutable afterwards; whoever runs a request with it holds a shared_ptr (its lease), so
// memory goes when the last request ends.
//
// Layout of a term, per expert: A as [rank][n_in] rows and B transposed as [rank][n_out] rows, each
// row of `type`. For kGetRows A stays [n_in][rank]. All blocks live in one arena, 64-byte aligned,
// in the order in which a forward pass reads them: term after term, A, then B, then the bias.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "modules/adapter.h"
#include "modules/site.h"

namespace graft {

enum class ResidentType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,  // as ggml's q8_0, blocks of 32 int8 with one scale (row_codec.h); lossy, by request only
};

struct ResidentTerm {
  SiteKey site;
  std::int64_t n_in = 0;
  std::int64_t n_out = 0;
  std::int64_t out_offset = 0;
  std::int64_t rank = 0;
  std::int64_t n_experts = 1;
  float scale = 1.0F;
  ResidentType type_a = ResidentType::kF16;
  ResidentType type_b = ResidentType::kF16;
  const std::byte* a = nullptr;  // [n_experts][rank][n_in], rows of row_bytes_a
  const std::byte* b = nullptr;  // [n_experts][rank][n_out], rows of row_bytes_b
  std::size_t row_bytes_a = 0;
  std::size_t row_bytes_b = 0;
  const float* bias = nullptr;  // [n_out] or null
};

enum class Precision : std::uint8_t {
  kFile,  // as the file has it (f32 stays f32)
  kF16,   // f32 factors become f16 where every value fits, else they stay
  kQ8_0,  // quantised; the largest error is reported. A matrix whose rows are no multiple of 32
          // values, or whose error would exceed kMaxQ8Error, is packed as kF16 says instead.
};

constexpr std::int64_t kQ8BlockValues = 32;
constexpr std::size_t kQ8BlockBytes = 34;
constexpr double kMaxQ8Error = 0.01;  // of the largest value of a row

// Bytes of one row. Requires: n_values is a multiple of kQ8BlockValues for kQ8_0.
std::size_t resident_row_bytes(ResidentType type, std::int64_t n_values);

class ResidentAdapter {
 public:
  // Packs `adapter`. Errors: kDataCorrupt when a factor's bytes do not fit its shape,
  // kResourceExhausted when the arena cannot be had.
  static Result<std::shared_ptr<const ResidentAdapter>> pack(
      const std::shared_ptr<const Adapter>& adapter, Precision precision);
  ~ResidentAdapter();
  ResidentAdapter(const ResidentAdapter&) = delete;
  ResidentAdapter& operator=(const ResidentAdapter&) = delete;

  const std::string& digest() const { return digest_; }
  const std::vector<ResidentTerm>& terms() const { return terms_; }
  // Terms that act at a site, or null. Stable pointers for the adapter's life.
  const std::vector<const ResidentTerm*>* terms_at(const SiteKey& site) const;
  std::uint64_t arena_bytes() const { return arena_bytes_; }
  std::int64_t max_rank() const { return max_rank_; }
  // Largest |packed - original| / max|original row| over the packed rows of all factors; 0 when
  // every value is kept exactly.
  double packing_error() const { return packing_error_; }

 private:
  ResidentAdapter() = default;

  std::string digest_;
  std::vector<ResidentTerm> terms_;
  std::unordered_map<SiteKey, std::vector<const ResidentTerm*>, SiteKeyHash> by_site_;
  std::byte* arena_ = nullptr;
  std::uint64_t arena_bytes_ = 0;  // whole pages, as mapped
  std::int64_t max_rank_ = 0;
  double packing_error_ = 0;
};

}  // namespace graft
