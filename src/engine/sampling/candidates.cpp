#include "engine/sampling/candidates.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "engine/sampling/logit_kernels.h"

namespace graft {
namespace {

// Above this, dividing by a small temperature could overflow. No model's logits come near it.
constexpr float kLargestLogit = 1e30F;
// The nucleus's border is narrowed to about this many tokens before they are sorted.
constexpr std::size_t kBandTokens = 256;

bool ranks_before(const llama_token_data& a, const llama_token_data& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
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

// Appends the tokens with low <= logit < high.
void LogitRow::collect(float low, float high) {
  const std::vector<float>& block_max = scratch_->block_max;
  for (std::size_t block = 0; block < block_max.size(); ++block) {
    if (block_max[block] < low) {
      continue;
    }
    const std::size_t end = std::min(logits_.size(), (block + 1) * kLogitBlock);
    for (std::size_t i = block * kLogitBlock; i < end; ++i) {
      if (logits_[i] >= low && logits_[i] < high) {
        scratch_->candidates.push_back({static_cast<TokenId>(i), logits_[i], 0.0F});
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
  std::vector<llama_token_data>& candidates = scratch_->candidates;
  candidates.clear();
  collect(threshold, INFINITY);
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(k);
  if (end != candidates.end()) {
    std::nth_element(candidates.begin(), end, candidates.end(), ranks_before);
  }
  candidates.resize(k);
  std::sort(candidates.begin(), candidates.end(), ranks_before);
}

// Raises `low`, whose tokens weigh at least `target` together (or are all there are), and lowers
// `high`, whose tokens weigh less, until few tokens lie between. Returns the new low.
float LogitRow::cut_at_weight(double target, float low, float& high, double& weight_above) const {
  std::size_t n_low = mass_at_least(logits_, scratch_->weights, low).n_tokens;
  std::size_t n_high = 0;
  while (n_low - n_high > kBandTokens) {
    const float middle = low + (high - low) / 2.0F;
    if (middle <= low || middle >= high) {
      break;  // no float lies between: equal logits
    }
    const Mass mass = mass_at_least(logits_, scratch_->weights, middle);
    if (mass.weight >= target) {
      low = middle;
      n_low = mass.n_tokens;
    } else {
      high = middle;
      n_high = mass.n_tokens;
      weight_above = mass.weight;
    }
  }
  return low;
}

void LogitRow::select_nucleus(float top_p, float min_p, float temperature) {
  std::vector<llama_token_data>& candidates = scratch_->candidates;
  candidates.clear();
  const auto likely = static_cast<double>(max_) +
                      static_cast<double>(temperature) * std::log(static_cast<double>(min_p));
  const auto floor = std::min(max_, std::max(static_cast<float>(likely), -FLT_MAX));
  scratch_->weights.resize(logits_.size());
  const double total =
      sum_exp(logits_, max_, 1.0F / temperature, scratch_->block_sum, scratch_->weights);
  if (top_p >= 1.0F) {
    collect(floor, INFINITY);
  } else {
    const double target = static_cast<double>(top_p) * total;
    // Tokens of less weight than this, even if all were, weigh less than 1 - top_p together: they
    // lie behind the nucleus. Half of it leaves room for rounding.
    const double tail = 0.5 * (total - target) / static_cast<double>(logits_.size());
    const double behind =
        static_cast<double>(max_) + static_cast<double>(temperature) * std::log(tail);
    float high = std::nextafter(max_, INFINITY);
    double weight = 0.0;
    const float low = cut_at_weight(
        target, std::min(max_, std::max(static_cast<float>(behind), -FLT_MAX)), high, weight);
    collect(high, INFINITY);
    const auto n_sure = static_cast<std::ptrdiff_t>(candidates.size());
    collect(low, high);
    std::sort(candidates.begin() + n_sure, candidates.end(), ranks_before);
    auto end = candidates.begin() + n_sure;
    while (end != candidates.end() && weight < target) {
      weight += static_cast<double>(scratch_->weights[static_cast<std::size_t>(end->id)]);
      ++end;
    }
    candidates.erase(end, candidates.end());
    std::erase_if(candidates, [&](const llama_token_data& c) { return c.logit < floor; });
  }
  for (llama_token_data& candidate : candidates) {
    candidate.p = scratch_->weights[static_cast<std::size_t>(candidate.id)];
  }
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

TokenId draw_weighted(std::span<const llama_token_data> candidates, double uniform) {
  double total = 0.0;
  for (const llama_token_data& candidate : candidates) {
    total += static_cast<double>(candidate.p);
  }
  const double target = uniform * total;
  TokenId drawn = candidates.front().id;
  double cumulated = 0.0;
  for (const llama_token_data& candidate : candidates) {
    if (candidate.p > 0.0F) {
      drawn = candidate.id;
      cumulated += static_cast<double>(candidate.p);
      if (cumulated > target) {
        break;
      }
    }
  }
  return drawn;
}

}  // namespace graft
