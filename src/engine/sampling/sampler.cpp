#include "engine/sampling/sampler.h"

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <unordered_set>

#include "engine/sampling/candidates.h"
#include "text/constraint.h"

namespace graft {
namespace {

// Below this, one token has all the probability; dividing by it only risks overflow.
constexpr float kGreedyTemperature = 1e-5F;
// Bias and penalties stay within this, so that no later step overflows.
constexpr float kLargestAdjusted = 1e26F;

Status check_range(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) {  // false for NaN
    return {};
  }
  return invalid_argument(std::string(name) + " is " + std::to_string(value) +
                              "; it must be between " + std::to_string(low) + " and " +
                              std::to_string(high),
                          name);
}

Status check_logit_bias(const SamplingParams& params, std::int32_t n_vocab) {
  if (params.logit_bias.size() > kMaxLogitBias) {
    return invalid_argument("logit_bias has " + std::to_string(params.logit_bias.size()) +
                                " entries; the limit is " + std::to_string(kMaxLogitBias),
                            "logit_bias");
  }
  std::unordered_set<TokenId> seen;
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= n_vocab) {
      return invalid_argument("logit_bias names token " + std::to_string(token) +
                                  "; the vocabulary has " + std::to_string(n_vocab) + " tokens",
                              "logit_bias");
    }
    if (!std::isfinite(bias)) {
      return invalid_argument(
          "the logit_bias of token " + std::to_string(token) + " is not a finite number",
          "logit_bias");
    }
    if (!seen.insert(token).second) {
      return invalid_argument("logit_bias names token " + std::to_string(token) + " twice",
                              "logit_bias");
    }
  }
  return {};
}

Status check(const SamplingParams& params, std::int32_t n_vocab) {
  GRAFT_RETURN_IF_ERROR(check_range("temperature", params.temperature, 0, 1000));
  GRAFT_RETURN_IF_ERROR(check_range("top_k", params.top_k, 0, INT32_MAX));
  GRAFT_RETURN_IF_ERROR(check_range("top_p", params.top_p, 1e-9, 1));
  GRAFT_RETURN_IF_ERROR(check_range("min_p", params.min_p, 0, 1));
  GRAFT_RETURN_IF_ERROR(check_range("repetition_penalty", params.repetition_penalty, 1e-3, 1e3));
  GRAFT_RETURN_IF_ERROR(check_range("frequency_penalty", params.frequency_penalty, -2, 2));
  GRAFT_RETURN_IF_ERROR(check_range("presence_penalty", params.presence_penalty, -2, 2));
  GRAFT_RETURN_IF_ERROR(check_range("penalty_last_n", params.penalty_last_n, 0, kMaxPenaltyLastN));
  GRAFT_RETURN_IF_ERROR(check_range("logprobs", params.n_logprobs.value_or(0), 0, 20));
  for (const TokenId token : params.allowed_tokens) {
    if (token < 0 || token >= n_vocab) {
      return invalid_argument("allowed_token_ids names token " + std::to_string(token) +
                                  "; the vocabulary has " + std::to_string(n_vocab) + " tokens",
                              "allowed_token_ids");
    }
  }
  return check_logit_bias(params, n_vocab);
}

// llama.cpp takes this one seed to mean "a random one".
std::uint32_t llama_seed(std::uint32_t seed) {
  return seed == LLAMA_DEFAULT_SEED ? LLAMA_DEFAULT_SEED - 1 : seed;
}

}  // namespace

SampleScratch::SampleScratch() : buffers_(std::make_unique<CandidateScratch>()) {}
SampleScratch::~SampleScratch() = default;
SampleScratch::SampleScratch(SampleScratch&&) noexcept = default;
SampleScratch& SampleScratch::operator=(SampleScratch&&) noexcept = default;

void Sampler::SamplerFree::operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }

Sampler::Sampler(const SamplingParams& params, std::int32_t n_vocab)
    : params_(params), n_vocab_(n_vocab), penalties_(params) {}

Result<std::unique_ptr<Sampler>> Sampler::create(const SamplingParams& params,
                                                 std::int32_t n_vocab) {
  GRAFT_RETURN_IF_ERROR(check(params, n_vocab));
  std::unique_ptr<Sampler> sampler(new Sampler(params, n_vocab));
  try {
    GRAFT_RETURN_IF_ERROR(sampler->add_rules());
  } catch (const std::exception& e) {
    return internal_error(std::string("a sampler cannot be made: ") + e.what());
  }
  return sampler;
}

bool Sampler::is_greedy() const {
  return params_.temperature < kGreedyTemperature || params_.top_k == 1;
}

Status Sampler::add_rules() {
  if (is_greedy()) {
    return {};
  }
  const std::uint32_t seed = params_.seed ? *params_.seed : std::random_device{}();
  random_.seed(seed);
  if (params_.top_k == 0) {
    return {};  // choose() draws itself
  }
  rules_.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  bool added = rules_ != nullptr && add_rule(llama_sampler_init_temp(params_.temperature));
  if (params_.top_p < 1.0F) {
    added = added && add_rule(llama_sampler_init_top_p(params_.top_p, 1));
  }
  if (params_.min_p > 0.0F) {
    added = added && add_rule(llama_sampler_init_min_p(params_.min_p, 1));
  }
  added = added && add_rule(llama_sampler_init_dist(llama_seed(seed)));
  return added ? Status() : internal_error("a sampler cannot be made");
}

bool Sampler::add_rule(llama_sampler* rule) {
  if (rule == nullptr) {
    return false;
  }
  llama_sampler_chain_add(rules_.get(), rule);
  return true;
}

void Sampler::accept(TokenId token) {
  if (token >= 0 && token < n_vocab_) {
    penalties_.accept(token);
  }
}

Result<SampledToken> Sampler::sample(std::span<const float> logits,
                                     std::span<const TokenId> suppressed, SampleScratch& scratch,
                                     ConstraintState* constraint) {
  if (logits.size() != static_cast<std::size_t>(n_vocab_)) {
    return internal_error("a row of logits has " + std::to_string(logits.size()) +
                          " values; the vocabulary has " + std::to_string(n_vocab_) + " tokens");
  }
  CandidateScratch& buffers = scratch.buffers();
  Result<TokenId> token = choose(adjust(logits, suppressed, buffers), buffers);
  if (constraint != nullptr) {
    bool fits = false;
    if (token) {
      GRAFT_ASSIGN_OR_RETURN(fits, constraint->fits(*token));
    }
    if (!fits) token = choose_allowed(logits, suppressed, buffers, *constraint);
  }
  if (!token) return std::move(token).error();
  SampledToken sampled{.token = *token};
  if (params_.n_logprobs) {
    GRAFT_RETURN_IF_ERROR(add_logprobs(logits, buffers, sampled));
  }
  return sampled;
}

std::span<const float> Sampler::adjust(std::span<const float> logits,
                                       std::span<const TokenId> suppressed,
                                       CandidateScratch& scratch) const {
  if (params_.logit_bias.empty() && params_.allowed_tokens.empty() && !penalties_.is_active() &&
      suppressed.empty()) {
    return logits;
  }
  std::vector<float>& adjusted = scratch.adjusted;
  if (params_.allowed_tokens.empty()) {
    adjusted.assign(logits.begin(), logits.end());
  } else {
    adjusted.assign(logits.size(), -INFINITY);
    for (const TokenId token : params_.allowed_tokens) {
      adjusted[static_cast<std::size_t>(token)] = logits[static_cast<std::size_t>(token)];
    }
  }
  const auto clamp = [&](TokenId token) {
    float& logit = adjusted[static_cast<std::size_t>(token)];
    logit = std::min(logit, kLargestAdjusted);  // keeps NaN and -inf
  };
  for (const auto& [token, bias] : params_.logit_bias) {
    adjusted[static_cast<std::size_t>(token)] += bias;
    clamp(token);
  }
  penalties_.apply(adjusted);
  for (const TokenId token : suppressed) {
    if (token >= 0 && token < n_vocab_) {
      adjusted[static_cast<std::size_t>(token)] = -INFINITY;
    }
  }
  return adjusted;
}

Result<TokenId> Sampler::choose(std::span<const float> logits, CandidateScratch& scratch) {
  std::optional<LogitRow> row = LogitRow::open(logits, scratch);
  if (!row) {
    return internal_error("the model's output is not finite, or every token is suppressed");
  }
  if (is_greedy()) {
    return row->argmax();
  }
  if (params_.top_k > 0) {
    row->select_top(static_cast<std::size_t>(params_.top_k));
    return draw_by_rules(scratch);
  }
  // 53 random bits, the same on every platform.
  const double uniform = static_cast<double>(random_() >> 11) * 0x1.0p-53;
  if (params_.top_p >= 1.0F && params_.min_p == 0.0F) {
    return row->draw(uniform, params_.temperature);
  }
  row->select_nucleus(params_.top_p, params_.min_p, params_.temperature);
  return draw_weighted(scratch.candidates, uniform);
}

Result<TokenId> Sampler::choose_allowed(std::span<const float> logits,
                                        std::span<const TokenId> suppressed,
                                        CandidateScratch& scratch, ConstraintState& constraint) {
  GRAFT_RETURN_IF_ERROR(constraint.allowed(scratch.allowed));
  const auto choose_without = [&](std::span<const TokenId> others) {
    const std::span<const float> adjusted = adjust(logits, others, scratch);
    if (adjusted.data() != scratch.adjusted.data()) {
      scratch.adjusted.assign(adjusted.begin(), adjusted.end());
    }
    for (TokenId token = 0; token < n_vocab_; ++token) {
      if (!scratch.allowed.contains(token)) {
        scratch.adjusted[static_cast<std::size_t>(token)] = -INFINITY;
      }
    }
    return choose(scratch.adjusted, scratch);
  };
  Result<TokenId> token = choose_without(suppressed);
  if (!token && constraint.may_end()) token = choose_without({});
  if (!token) return invalid_argument("no token of the model fits the grammar at this place");
  return token;
}

Result<TokenId> Sampler::draw_by_rules(CandidateScratch& scratch) {
  llama_token_data_array candidates{.data = scratch.candidates.data(),
                                    .size = scratch.candidates.size(),
                                    .selected = -1,
                                    .sorted = true};
  try {
    llama_sampler_apply(rules_.get(), &candidates);
  } catch (const std::exception& e) {
    return internal_error(std::string("sampling failed: ") + e.what());
  }
  if (candidates.selected < 0 ||
      candidates.selected >= static_cast<std::int64_t>(candidates.size)) {
    return internal_error("sampling chose no token");
  }
  return candidates.data[candidates.selected].id;
}

Status Sampler::add_logprobs(std::span<const float> logits, CandidateScratch& scratch,
                             SampledToken& sampled) const {
  GRAFT_ASSIGN_OR_RETURN(TokenScore score,
                         score_token(logits, sampled.token, *params_.n_logprobs, scratch));
  sampled.logprob = score.logprob;
  sampled.top = std::move(score.top);
  return {};
}

}  // namespace graft
