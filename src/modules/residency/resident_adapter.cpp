#include "modules/residency/resident_adapter.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "base/check.h"
#include "modules/residency/half_float.h"
#include "modules/residency/row_codec.h"

namespace graft {
namespace {

constexpr std::uint64_t kBlockAlignment = 64;  // a cache line
constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} * 1024 * 1024;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A factor as it is laid out: matrices of rows, gathered from the file's matrix by strides.
struct PackedView {
  const FactorMatrix* source = nullptr;
  std::int64_t n_rows = 0;    // of all experts
  std::int64_t n_values = 0;  // per row
  std::int64_t rows_per_expert = 0;
  std::int64_t row_stride = 0;     // in source values
  std::int64_t value_stride = 0;   // in source values
  std::int64_t expert_stride = 0;  // in source values

  std::int64_t first_value(std::int64_t row) const {
    return row / rows_per_expert * expert_stride + row % rows_per_expert * row_stride;
  }
};

PackedView view_as_stored(const FactorMatrix& matrix) {
  return {.source = &matrix,
          .n_rows = matrix.n_rows,
          .n_values = matrix.n_cols,
          .rows_per_expert = std::max<std::int64_t>(matrix.n_rows, 1),
          .row_stride = matrix.n_cols,
          .value_stride = 1,
          .expert_stride = 0};
}

// B [n_experts * n_out, rank] seen as [n_experts][rank][n_out].
PackedView view_transposed(const LoraTerm& term) {
  return {.source = &term.b,
          .n_rows = term.n_experts * term.rank,
          .n_values = term.n_out,
          .rows_per_expert = term.rank,
          .row_stride = 1,
          .value_stride = term.rank,
          .expert_stride = term.n_out * term.rank};
}

ResidentType same_type(FactorType type) {
  switch (type) {
    case FactorType::kF32: return ResidentType::kF32;
    case FactorType::kF16: return ResidentType::kF16;
    case FactorType::kBF16: return ResidentType::kBF16;
  }
  return ResidentType::kF32;
}

void gather(const PackedView& view, std::int64_t row, std::span<float> values) {
  const ResidentType type = same_type(view.source->type);
  const std::byte* bytes = view.source->bytes.data();
  std::int64_t index = view.first_value(row);
  for (float& value : values) {
    value = decode_value(type, bytes, index);
    index += view.value_stride;
  }
}

// Moves the bits of one row, without a conversion.
template <typename Bits>
void copy_row(const PackedView& view, std::int64_t row, std::byte* to) {
  const std::byte* from =
      view.source->bytes.data() + static_cast<std::size_t>(view.first_value(row)) * sizeof(Bits);
  const auto n = static_cast<std::size_t>(view.n_values);
  if (view.value_stride == 1) {
    std::memcpy(to, from, n * sizeof(Bits));
    return;
  }
  const std::size_t step = static_cast<std::size_t>(view.value_stride) * sizeof(Bits);
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(to + i * sizeof(Bits), from + i * step, sizeof(Bits));
  }
}

// Largest error of the row relative to its largest value; infinite when a value is not finite.
double row_error(std::span<const float> original, std::span<const float> packed) {
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i < original.size(); ++i) {
    if (!std::isfinite(original[i]) || !std::isfinite(packed[i])) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(largest, std::fabs(double{original[i]}));
    error = std::max(error, std::fabs(double{original[i]} - double{packed[i]}));
  }
  return error > 0 ? error / largest : 0;
}

struct MatrixPlan {
  ResidentType type = ResidentType::kF32;
  double error = 0;
};

double conversion_error(const PackedView& view, ResidentType type) {
  std::vector<float> original(static_cast<std::size_t>(view.n_values));
  std::vector<float> packed(original.size());
  std::vector<std::byte> row(resident_row_bytes(type, view.n_values));
  double error = 0;
  for (std::int64_t r = 0; r < view.n_rows; ++r) {
    gather(view, r, original);
    encode_row(type, original, row.data());
    decode_row(type, row.data(), packed);
    error = std::max(error, row_error(original, packed));
  }
  return error;
}

bool fits_f16(const FactorMatrix& matrix) {
  const auto* values = matrix.bytes.data();
  const std::int64_t n = matrix.n_rows * matrix.n_cols;
  for (std::int64_t i = 0; i < n; ++i) {
    // The comparison is false for NaN.
    if (!(std::fabs(decode_value(ResidentType::kF32, values, i)) <= kMaxF16)) {
      return false;
    }
  }
  return true;
}

MatrixPlan plan_matrix(const PackedView& view, Precision precision) {
  if (precision == Precision::kQ8_0 && view.n_values % kQ8BlockValues == 0) {
    const double error = conversion_error(view, ResidentType::kQ8_0);
    if (error <= kMaxQ8Error) {
      return {ResidentType::kQ8_0, error};
    }
  }
  const bool shorten = precision != Precision::kFile && view.source->type == FactorType::kF32;
  if (shorten && fits_f16(*view.source)) {
    return {ResidentType::kF16, conversion_error(view, ResidentType::kF16)};
  }
  return {same_type(view.source->type), 0};
}

void pack_matrix(const PackedView& view, ResidentType type, std::byte* to) {
  const std::size_t row_bytes = resident_row_bytes(type, view.n_values);
  std::vector<float> values(static_cast<std::size_t>(view.n_values));
  for (std::int64_t row = 0; row < view.n_rows; ++row, to += row_bytes) {
    if (type != same_type(view.source->type)) {
      gather(view, row, values);
      encode_row(type, values, to);
    } else if (type == ResidentType::kF32) {
      copy_row<std::uint32_t>(view, row, to);
    } else {
      copy_row<std::uint16_t>(view, row, to);
    }
  }
}

// Requires: n_rows > 0; 0 < n_cols < 2^31.
bool has_shape(const FactorMatrix& matrix, std::int64_t n_rows, std::int64_t n_cols) {
  if (matrix.n_rows != n_rows || matrix.n_cols != n_cols) {
    return false;
  }
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(n_cols) * bytes_per_value(matrix.type);
  return matrix.bytes.size() % row_bytes == 0 &&
         matrix.bytes.size() / row_bytes == static_cast<std::uint64_t>(n_rows);
}

Status check_term(const LoraTerm& term) {
  const std::int64_t n_experts = term.n_experts;
  const bool is_lookup = term.site.op == SiteOp::kGetRows;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  bool fits = term.rank > 0 && term.rank <= kMost && n_experts > 0 && n_experts <= kMost &&
              term.n_in > 0 && term.n_in <= kMost && term.n_out > 0 && term.n_out <= kMost &&
              term.out_offset >= 0 && term.out_offset <= kMost;
  fits = fits && (is_lookup ? n_experts == 1 && has_shape(term.a, term.n_in, term.rank)
                            : has_shape(term.a, n_experts * term.rank, term.n_in));
  fits = fits && has_shape(term.b, n_experts * term.n_out, term.rank);
  fits = fits && (term.bias.empty() || term.bias.size() == static_cast<std::size_t>(term.n_out));
  if (!fits) {
    return data_corrupt(
        "adapter term at " + term.site.tensor + ": factors of " + std::to_string(term.a.n_rows) +
        "x" + std::to_string(term.a.n_cols) + " and " + std::to_string(term.b.n_rows) + "x" +
        std::to_string(term.b.n_cols) + " values do not fit rank " + std::to_string(term.rank));
  }
  return {};
}

// Where the parts of a term go.
struct TermPlan {
  PackedView a;
  PackedView b;
  ResidentType type_a = ResidentType::kF32;
  ResidentType type_b = ResidentType::kF32;
  std::uint64_t offset_a = 0;
  std::uint64_t offset_b = 0;
  std::uint64_t offset_bias = 0;
};

// Reserves an aligned block behind `end`; returns its offset.
std::uint64_t reserve(std::uint64_t bytes, std::uint64_t& end) {
  const std::uint64_t offset = end;
  end = round_up(end + bytes, kBlockAlignment);
  return offset;
}

std::uint64_t matrix_bytes(const PackedView& view, ResidentType type) {
  return static_cast<std::uint64_t>(view.n_rows) * resident_row_bytes(type, view.n_values);
}

TermPlan plan_term(const LoraTerm& term, Precision precision, std::uint64_t& end, double& error) {
  TermPlan plan;
  plan.a = view_as_stored(term.a);
  plan.b = view_transposed(term);
  const MatrixPlan a = plan_matrix(plan.a, precision);
  const MatrixPlan b = plan_matrix(plan.b, precision);
  plan.type_a = a.type;
  plan.type_b = b.type;
  error = std::max({error, a.error, b.error});
  plan.offset_a = reserve(matrix_bytes(plan.a, a.type), end);
  plan.offset_b = reserve(matrix_bytes(plan.b, b.type), end);
  plan.offset_bias = reserve(term.bias.size() * sizeof(float), end);
  return plan;
}

// Maps whole pages, on a huge-page boundary where that can matter: kernels stream the arena.
std::byte* map_arena(std::uint64_t bytes) {
  const std::uint64_t slack = bytes >= kHugePageBytes ? kHugePageBytes : 0;
  void* mapped =
      mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  auto* start = static_cast<std::byte*>(mapped);
  if (slack == 0) {
    return start;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const std::uint64_t skip = round_up(address, kHugePageBytes) - address;
  if (skip > 0) {
    munmap(start, skip);
  }
  if (slack > skip) {
    munmap(start + skip + bytes, slack - skip);
  }
#ifdef MADV_HUGEPAGE
  madvise(start + skip, bytes, MADV_HUGEPAGE);
#endif
  return start + skip;
}

ResidentTerm fill_term(const LoraTerm& term, const TermPlan& plan, std::byte* arena) {
  ResidentTerm out;
  out.site = term.site;
  out.n_in = term.n_in;
  out.n_out = term.n_out;
  out.out_offset = term.out_offset;
  out.rank = term.rank;
  out.n_experts = term.n_experts;
  out.scale = term.scale;
  out.type_a = plan.type_a;
  out.type_b = plan.type_b;
  out.row_bytes_a = resident_row_bytes(plan.type_a, plan.a.n_values);
  out.row_bytes_b = resident_row_bytes(plan.type_b, plan.b.n_values);
  pack_matrix(plan.a, plan.type_a, arena + plan.offset_a);
  pack_matrix(plan.b, plan.type_b, arena + plan.offset_b);
  out.a = arena + plan.offset_a;
  out.b = arena + plan.offset_b;
  if (!term.bias.empty()) {
    std::memcpy(arena + plan.offset_bias, term.bias.data(), term.bias.size() * sizeof(float));
    out.bias = reinterpret_cast<const float*>(arena + plan.offset_bias);
  }
  return out;
}

}  // namespace

Result<std::shared_ptr<const ResidentAdapter>> ResidentAdapter::pack(
    const std::shared_ptr<const Adapter>& adapter, Precision precision) {
  GRAFT_CHECK(adapter != nullptr);
  std::shared_ptr<ResidentAdapter> resident(new ResidentAdapter());
  std::vector<TermPlan> plans;
  plans.reserve(adapter->terms.size());
  std::uint64_t end = 0;
  for (const LoraTerm& term : adapter->terms) {
    GRAFT_RETURN_IF_ERROR(check_term(term));
    plans.push_back(plan_term(term, precision, end, resident->packing_error_));
    resident->max_rank_ = std::max(resident->max_rank_, term.rank);
  }

  const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t arena_bytes = round_up(std::max<std::uint64_t>(end, 1), page_bytes);
  resident->arena_ = map_arena(arena_bytes);
  if (resident->arena_ == nullptr) {
    return Error{ErrorCode::kResourceExhausted,
                 "no memory for an adapter of " + std::to_string(arena_bytes) + " bytes",
                 {}};
  }
  resident->arena_bytes_ = arena_bytes;

  resident->digest_ = adapter->digest;
  resident->terms_.reserve(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    resident->terms_.push_back(fill_term(adapter->terms[i], plans[i], resident->arena_));
  }
  for (const ResidentTerm& term : resident->terms_) {
    resident->by_site_[term.site].push_back(&term);
  }
  mprotect(resident->arena_, arena_bytes, PROT_READ);  // immutable from here on
  return std::shared_ptr<const ResidentAdapter>(std::move(resident));
}

ResidentAdapter::~ResidentAdapter() {
  if (arena_ != nullptr) {
    munmap(arena_, arena_bytes_);
  }
}

const std::vector<const ResidentTerm*>* ResidentAdapter::terms_at(const SiteKey& site) const {
  const auto found = by_site_.find(site);
  return found == by_site_.end() ? nullptr : &found->second;
}

}  // namespace graft
