#include "cli/site_norms.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "modules/residency/half_float.h"

namespace graft::cli {
namespace {

float value_at(const FactorMatrix& matrix, std::int64_t index) {
  const auto at = static_cast<std::size_t>(index);
  if (matrix.type == FactorType::kF32) {
    float value = 0;
    std::memcpy(&value, matrix.bytes.data() + 4 * at, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, matrix.bytes.data() + 2 * at, 2);
  return matrix.type == FactorType::kF16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

// `rank` vectors of `length` values each inside a matrix.
struct Vectors {
  const FactorMatrix& matrix;
  std::int64_t first = 0;  // index of the first value
  std::int64_t rank = 0;
  std::int64_t length = 0;
  std::int64_t vector_stride = 0;  // from a vector to the next
  std::int64_t value_stride = 0;   // from a value of a vector to the next
};

// All inner products, [rank][rank].
std::vector<double> gram(const Vectors& v) {
  const auto n = static_cast<std::size_t>(v.rank);
  std::vector<double> products(n * n, 0);
  std::vector<float> values(n);
  for (std::int64_t k = 0; k < v.length; ++k) {
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = value_at(
          v.matrix, v.first + k * v.value_stride + static_cast<std::int64_t>(i) * v.vector_stride);
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        products[i * n + j] += static_cast<double>(values[i]) * static_cast<double>(values[j]);
      }
    }
  }
  return products;
}

double trace(const std::vector<double>& square, std::int64_t rank) {
  double sum = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    sum += square[i * static_cast<std::size_t>(rank) + i];
  }
  return sum;
}

SiteNorm norm_of(const LoraTerm& term) {
  SiteNorm norm;
  norm.site = std::string(to_string(term.site.op)) + " " + term.site.tensor;
  norm.scale = term.scale;
  const bool is_lookup = term.site.op == SiteOp::kGetRows;
  double a = 0;
  double b = 0;
  double update = 0;
  for (std::int64_t expert = 0; expert < term.n_experts; ++expert) {
    const Vectors of_a{.matrix = term.a,
                       .first = expert * term.rank * term.n_in,
                       .rank = term.rank,
                       .length = term.n_in,
                       .vector_stride = is_lookup ? 1 : term.n_in,
                       .value_stride = is_lookup ? term.rank : 1};
    const Vectors of_b{.matrix = term.b,
                       .first = expert * term.n_out * term.rank,
                       .rank = term.rank,
                       .length = term.n_out,
                       .vector_stride = 1,
                       .value_stride = term.rank};
    const std::vector<double> gram_a = gram(of_a);
    const std::vector<double> gram_b = gram(of_b);
    a += trace(gram_a, term.rank);
    b += trace(gram_b, term.rank);
    for (std::size_t i = 0; i < gram_a.size(); ++i) update += gram_a[i] * gram_b[i];
  }
  norm.a = std::sqrt(a);
  norm.b = std::sqrt(b);
  norm.update = std::fabs(static_cast<double>(term.scale)) * std::sqrt(std::max(update, 0.0));
  return norm;
}

}  // namespace

std::vector<SiteNorm> site_norms(const Adapter& adapter) {
  std::vector<SiteNorm> norms;
  for (const LoraTerm& term : adapter.terms) norms.push_back(norm_of(term));
  return norms;
}

std::vector<std::string> explain_no_effect(const std::vector<SiteNorm>& norms,
                                           float request_scale) {
  std::vector<std::string> reasons;
  const auto count = [&norms](auto is_so) {
    return static_cast<std::size_t>(std::count_if(norms.begin(), norms.end(), is_so));
  };
  const auto of_all = [&norms](std::size_t n) {
    return n == norms.size() ? std::string("every site")
                             : std::to_string(n) + " of " + std::to_string(norms.size()) + " sites";
  };
  if (request_scale == 0) reasons.push_back("the request's scale is 0: the adapter is left out");
  if (const auto n = count([](const SiteNorm& norm) { return norm.scale == 0; }); n > 0) {
    reasons.push_back("the adapter's own scale (alpha / rank) is 0 at " + of_all(n));
  }
  if (const auto n = count([](const SiteNorm& norm) { return norm.b == 0; }); n > 0) {
    reasons.push_back("B is all zeros at " + of_all(n) +
                      ": as LoRA begins; it was not trained there, or saved before training");
  }
  if (const auto n = count([](const SiteNorm& norm) { return norm.a == 0; }); n > 0) {
    reasons.push_back("A is all zeros at " + of_all(n));
  }
  const auto is_empty_product = [](const SiteNorm& norm) {
    return norm.a > 0 && norm.b > 0 && norm.scale != 0 && norm.update < 1e-6 * norm.a * norm.b;
  };
  if (const auto n = count(is_empty_product); n > 0) {
    reasons.push_back("B A cancels to nearly nothing at " + of_all(n));
  }
  return reasons;
}

}  // namespace graft::cli
