#include "engine/sampling/candidates.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "engine/sampling/logit_kernels.h"

namespace graft {
namespace {

// Above this, dividing by a small temperature could overflow. No model's logits come near it.
constexpr float kLargestLogit = 1e30F;

bool ranks_before(const llama_token_data& a, const llama_token_data& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Reorders weighted candidates so that those before the returned position are the smallest set of
// highest rank whose weight reaches `target`: a selection by weight, linear on average.
std::ptrdiff_t split_by_weight(std::vector<llama_token_data>& candidates, double target) {
  auto low = candidates.begin();  // all before it belong to the set
  auto high = candidates.end();   // all from here on do not, unless rounding leaves a gap
  double weight = 0.0;            // of [begin, low)
  while (high - low > 32) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, ranks_before);
    double upper = 0.0;
    for (auto it = low; it != middle; ++it) {
      upper += static_cast<double>(it->p);
    }
    if (weight + upper >= target) {
      high = middle;
    } else {
      weight += upper;
      low = middle;
    }
  }
  std::sort(low, high, ranks_before);
  while (low != high && weight < target) {
    weight += static_cast<double>(low->p);
    ++low;
  }
  return low - candidates.begin();
}

}  // namespace

std::optional<LogitRow> LogitRow::open(std::span<const float> logits, CandidateScratch& scratch) {
  GRAFT_CHECK(!logits.empty());
  scratch.block_max.resize(n_logit_blocks(logits.size()));
  scratch.block_sum.resize(scratch.block_max.size());
  const LogitRange range = block_maxima(logits, scratch.block_max);
  if (range.has_nan || !(std::abs(range.max) <= kLargestLogit)) {
    return std::nullopt;
  }
  return LogitRow(logits, range.max, scratch);
}

TokenId LogitRow::argmax() const { return first_index_of(logits_, max_); }

double LogitRow::total_weight(float temperature) const {
  return sum_exp(logits_, max_, 1.0F / temperature, scratch_->block_sum);
}

double LogitRow::log_sum_exp() const {
  return static_cast<double>(max_) + std::log(total_weight(1.0F));
}

void LogitRow::collect_at_least(float threshold) {
  std::vector<llama_token_data>& candidates = scratch_->candidates;
  candidates.clear();
  for (std::size_t block = 0; block < scratch_->block_max.size(); ++block) {
    if (scratch_->block_max[block] < threshold) {
      continue;
    }
    const std::size_t end = std::min(logits_.size(), (block + 1) * kLogitBlock);
    for (std::size_t i = block * kLogitBlock; i < end; ++i) {
      if (logits_[i] >= threshold) {
        candidates.push_back({static_cast<TokenId>(i), logits_[i], 0.0F});
      }
    }
  }
}

void LogitRow::select_top(std::size_t k) {
  k = std::min(k, logits_.size());
  std::vector<float>& ordered = scratch_->ordered;
  ordered = scratch_->block_max;
  float threshold = -INFINITY;
  if (k <= ordered.size()) {
    // k blocks have a maximum of at least this, so at least k logits do.
    const auto kth = ordered.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(ordered.begin(), kth, ordered.end(), std::greater<>());
    threshold = *kth;
  }
  collect_at_least(threshold);
  std::vector<llama_token_data>& candidates = scratch_->candidates;
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(k);
  if (end != candidates.end()) {
    std::nth_element(candidates.begin(), end, candidates.end(), ranks_before);
  }
  candidates.resize(k);
  std::sort(candidates.begin(), candidates.end(), ranks_before);
}

void LogitRow::select_nucleus(float p, float temperature) {
  const double total = total_weight(temperature);
  // Tokens of less weight than this, even if all were, weigh less than 1 - p together: they lie
  // behind the nucleus. Half of it leaves room for rounding.
  const double tail =
      0.5 * (1.0 - static_cast<double>(p)) * total / static_cast<double>(logits_.size());
  const double threshold =
      static_cast<double>(max_) + static_cast<double>(temperature) * std::log(tail);
  collect_at_least(std::min(max_, static_cast<float>(threshold)));
  for (llama_token_data& candidate : scratch_->candidates) {
    candidate.p = std::exp((candidate.logit - max_) / temperature);
  }
  const std::ptrdiff_t n = split_by_weight(scratch_->candidates, static_cast<double>(p) * total);
  scratch_->candidates.resize(static_cast<std::size_t>(std::max<std::ptrdiff_t>(n, 1)));
}

void LogitRow::select_above(float min_p, float temperature) {
  // A little lower than the exact bound, because the exact rule divides first.
  const float reach = temperature * (std::log(min_p) - 1e-3F);
  const float slack = 1e-5F * std::abs(max_);
  collect_at_least(max_ + reach - slack);
}

TokenId LogitRow::draw(double uniform, float temperature) const {
  const double target = uniform * total_weight(temperature);
  const std::vector<float>& sums = scratch_->block_sum;
  double cumulated = 0.0;
  std::size_t block = 0;
  std::size_t last_block = 0;  // the last one that weighs anything
  for (; block < sums.size(); ++block) {
    if (sums[block] > 0.0F) {
      last_block = block;
      if (cumulated + static_cast<double>(sums[block]) > target) {
        break;
      }
    }
    cumulated += static_cast<double>(sums[block]);
  }
  block = std::min(block, last_block);
  const std::size_t end = std::min(logits_.size(), (block + 1) * kLogitBlock);
  // Rounding may leave the target a hair above this block's sum: then its last token with weight.
  TokenId drawn = argmax();
  for (std::size_t i = block * kLogitBlock; i < end; ++i) {
    const float weight = std::exp((logits_[i] - max_) / temperature);
    if (weight > 0.0F) {
      drawn = static_cast<TokenId>(i);
      cumulated += static_cast<double>(weight);
      if (cumulated > target) {
        break;
      }
    }
  }
  return drawn;
}

}  // namespace graft
