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

LogitRange BlockMaxima(const float* logits, std::size_t n, float* block_max) {
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

TokenId FirstIndexOf(const float* logits, std::size_t n, float max) {
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

double SumExp(const float* logits, std::size_t n, float max, float inverse_temperature,
              float* block_sum) {
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
    for (std::size_t i = 0; i < kLogitBlock; i += hn::Lanes(d)) {
      const auto x = hn::LoadU(d, block + i);
      sum = hn::Add(sum, hn::Exp(d, hn::Mul(hn::Sub(x, shift), scale)));
    }
    const float weight = hn::GetLane(hn::SumOfLanes(d, sum));
    block_sum[begin / kLogitBlock] = weight;
    total += static_cast<double>(weight);
  }
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace graft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace graft {

HWY_EXPORT(BlockMaxima);
HWY_EXPORT(FirstIndexOf);
HWY_EXPORT(SumExp);

LogitRange block_maxima(std::span<const float> logits, std::span<float> block_max) {
  return HWY_DYNAMIC_DISPATCH(BlockMaxima)(logits.data(), logits.size(), block_max.data());
}

TokenId first_index_of(std::span<const float> logits, float max) {
  return HWY_DYNAMIC_DISPATCH(FirstIndexOf)(logits.data(), logits.size(), max);
}

double sum_exp(std::span<const float> logits, float max, float inverse_temperature,
               std::span<float> block_sum) {
  return HWY_DYNAMIC_DISPATCH(SumExp)(logits.data(), logits.size(), max, inverse_temperature,
                                      block_sum.data());
}

}  // namespace graft
#endif  // HWY_ONCE
