#include "engine/sampling/logit_kernels.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/sampling/logit_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors hold a power of two of at most 16 floats, so whole vectors fill a block.
using FloatTag = hn::CappedTag<float, 16>;
static_assert(kLogitBlock % 16 == 0);

LogitRange block_maxima_kernel(const float* logits, std::size_t n, float* block_max) {
  const FloatTag d;
  auto nan = hn::Zero(d);  // a logit minus itself is 0, or NaN for NaN and the infinities
  LogitRange range{.max = logits[0]};
  for (std::size_t begin = 0; begin < n; begin += kLogitBlock) {
    const std::size_t end = std::min(n, begin + kLogitBlock);
    float max = logits[begin];
    std::size_t i = begin;
    if (end - begin == kLogitBlock) {
      auto maxima = hn::LoadU(d, logits + begin);
      for (; i < end; i += hn::Lanes(d)) {
        const auto x = hn::LoadU(d, logits + i);
        maxima = hn::Max(maxima, x);
        nan = hn::IfThenElse(hn::IsNaN(x), hn::Set(d, 1.0F), nan);
      }
      max = hn::GetLane(hn::MaxOfLanes(d, maxima));
    }
    for (; i < end; ++i) {
      range.has_nan = range.has_nan || logits[i] != logits[i];
      max = logits[i] > max ? logits[i] : max;
    }
    block_max[begin / kLogitBlock] = max;
    range.max = max > range.max ? max : range.max;
  }
  range.has_nan = range.has_nan || hn::GetLane(hn::MaxOfLanes(d, nan)) > 0.0F;
  return range;
}

TokenId first_index_kernel(const float* logits, std::size_t n, float max) {
  const FloatTag d;
  const auto wanted = hn::Set(d, max);
  const std::size_t n_lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + n_lanes <= n; i += n_lanes) {
    if (!hn::AllFalse(d, hn::Eq(hn::LoadU(d, logits + i), wanted))) {
      break;
    }
  }
  while (i + 1 < n && logits[i] != max) {
    ++i;
  }
  return static_cast<TokenId>(i);
}

// `weights` may be null.
double sum_exp_kernel(const float* logits, std::size_t n, float max, float inverse_temperature,
                      float* block_sum, float* weights) {
  const FloatTag d;
  const auto shift = hn::Set(d, max);
  const auto scale = hn::Set(d, inverse_temperature);
  double total = 0.0;
  float padded[kLogitBlock];
  for (std::size_t begin = 0; begin < n; begin += kLogitBlock) {
    const float* block = logits + begin;
    if (n - begin < kLogitBlock) {
      std::fill_n(padded, kLogitBlock, -std::numeric_limits<float>::infinity());
      std::copy_n(block, n - begin, padded);
      block = padded;
    }
    auto sum = hn::Zero(d);
    float* out = block == padded || weights == nullptr ? padded : weights + begin;
    for (std::size_t i = 0; i < kLogitBlock; i += hn::Lanes(d)) {
      const auto x = hn::LoadU(d, block + i);
      const auto weight = hn::Exp(d, hn::Mul(hn::Sub(x, shift), scale));
      hn::StoreU(weight, d, out + i);
      sum = hn::Add(sum, weight);
    }
    if (block == padded && weights != nullptr) {
      std::copy_n(padded, n - begin, weights + begin);
    }
    const float weight = hn::GetLane(hn::SumOfLanes(d, sum));
    block_sum[begin / kLogitBlock] = weight;
    total += static_cast<double>(weight);
  }
  return total;
}

Mass mass_at_least_kernel(const float* logits, const float* weights, std::size_t n,
                          float threshold) {
  const FloatTag d;
  const auto bound = hn::Set(d, threshold);
  Mass mass;
  std::size_t begin = 0;
  for (; begin + kLogitBlock <= n; begin += kLogitBlock) {
    auto weight = hn::Zero(d);
    auto count = hn::Zero(d);
    for (std::size_t i = begin; i < begin + kLogitBlock; i += hn::Lanes(d)) {
      const auto inside = hn::Ge(hn::LoadU(d, logits + i), bound);
      weight = hn::Add(weight, hn::IfThenElseZero(inside, hn::LoadU(d, weights + i)));
      count = hn::Add(count, hn::IfThenElseZero(inside, hn::Set(d, 1.0F)));
    }
    mass.weight += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, weight)));
    mass.n_tokens += static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(d, count)));
  }
  for (; begin < n; ++begin) {
    if (logits[begin] >= threshold) {
      mass.weight += static_cast<double>(weights[begin]);
      ++mass.n_tokens;
    }
  }
  return mass;
}

std::size_t count_above_kernel(const float* logits, std::size_t n, float value) {
  const FloatTag d;
  const auto bound = hn::Set(d, value);
  const std::size_t n_lanes = hn::Lanes(d);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + n_lanes <= n; i += n_lanes) {
    count += hn::CountTrue(d, hn::Gt(hn::LoadU(d, logits + i), bound));
  }
  for (; i < n; ++i) {
    count += logits[i] > value ? 1U : 0U;
  }
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace graft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace graft {

HWY_EXPORT(block_maxima_kernel);
HWY_EXPORT(first_index_kernel);
HWY_EXPORT(sum_exp_kernel);
HWY_EXPORT(mass_at_least_kernel);
HWY_EXPORT(count_above_kernel);

LogitRange block_maxima(std::span<const float> logits, std::span<float> block_max) {
  return HWY_DYNAMIC_DISPATCH(block_maxima_kernel)(logits.data(), logits.size(), block_max.data());
}

TokenId first_index_of(std::span<const float> logits, float max) {
  return HWY_DYNAMIC_DISPATCH(first_index_kernel)(logits.data(), logits.size(), max);
}

double sum_exp(std::span<const float> logits, float max, float inverse_temperature,
               std::span<float> block_sum, std::span<float> weights) {
  return HWY_DYNAMIC_DISPATCH(sum_exp_kernel)(logits.data(), logits.size(), max,
                                              inverse_temperature, block_sum.data(),
                                              weights.empty() ? nullptr : weights.data());
}

Mass mass_at_least(std::span<const float> logits, std::span<const float> weights, float threshold) {
  return HWY_DYNAMIC_DISPATCH(mass_at_least_kernel)(logits.data(), weights.data(), logits.size(),
                                                    threshold);
}

std::size_t count_above(std::span<const float> logits, float value) {
  return HWY_DYNAMIC_DISPATCH(count_above_kernel)(logits.data(), logits.size(), value);
}

}  // namespace graft
#endif  // HWY_ONCE
