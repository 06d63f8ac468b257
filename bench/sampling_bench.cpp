// What choosing one token costs, by sampling rule and vocabulary, beside llama.cpp's own chain on a
// full candidate array. Logits are normal with a few favourites, as a model's are; "flat" has none.
#include <benchmark/benchmark.h>
#include <llama.h>

#include <memory>
#include <random>
#include <vector>

#include "engine/sampling/sampler.h"

namespace graft {
namespace {

std::vector<float> make_logits(std::size_t n, bool flat) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0.0F, flat ? 0.5F : 2.5F);
  std::vector<float> logits(n);
  for (float& logit : logits) {
    logit = normal(rng);
  }
  for (std::size_t i = 0; !flat && i < 50; ++i) {
    logits[rng() % n] = 20.0F - 0.2F * static_cast<float>(i);
  }
  return logits;
}

SamplingParams rule(int which) {
  SamplingParams params;
  params.seed = 1;
  switch (which) {
    case 0: params.temperature = 0.0F; break;
    case 1: params.top_k = 40; break;
    case 2: params.top_p = 0.95F; break;
    case 3: params.min_p = 0.05F; break;
    case 4: break;  // temperature alone: what most clients send
    case 5:
      params.top_p = 0.95F;
      params.repetition_penalty = 1.1F;
      break;
    default: params.n_logprobs = 20; break;
  }
  return params;
}

const char* const kRuleNames[] = {
    "greedy",      "top_k=40",        "top_p=0.95",          "min_p=0.05",
    "temperature", "top_p+penalties", "temperature+logprobs"};

void graft_sampler(benchmark::State& state) {
  const auto n_vocab = static_cast<std::int32_t>(state.range(1));
  const std::vector<float> logits =
      make_logits(static_cast<std::size_t>(n_vocab), state.range(2) != 0);
  auto sampler = Sampler::create(rule(static_cast<int>(state.range(0))), n_vocab);
  SampleScratch scratch;
  for (TokenId token = 0; token < 64; ++token) {
    (*sampler)->accept(token * 31);
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize((*sampler)->sample(logits, {}, scratch));
  }
  state.SetLabel(kRuleNames[state.range(0)]);
}

// The same rule as a chain over all candidates, as llama_sampler_sample runs it.
void llama_chain(benchmark::State& state) {
  const auto n_vocab = static_cast<std::size_t>(state.range(1));
  const std::vector<float> logits = make_logits(n_vocab, state.range(2) != 0);
  const SamplingParams params = rule(static_cast<int>(state.range(0)));
  std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> chain(
      llama_sampler_chain_init(llama_sampler_chain_default_params()), llama_sampler_free);
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain.get(), sampler); };
  add(llama_sampler_init_penalties(static_cast<std::int32_t>(n_vocab), params.penalty_last_n,
                                   params.repetition_penalty, 0.0F, 0.0F));
  if (params.temperature == 0.0F) {
    add(llama_sampler_init_greedy());
  } else {
    if (params.top_k > 0) {
      add(llama_sampler_init_top_k(params.top_k));
    }
    add(llama_sampler_init_temp(params.temperature));
    add(llama_sampler_init_top_p(params.top_p, 1));
    add(llama_sampler_init_min_p(params.min_p, 1));
    add(llama_sampler_init_dist(1));
  }
  for (llama_token token = 0; token < 64; ++token) {
    llama_sampler_accept(chain.get(), token * 31);
  }
  std::vector<llama_token_data> candidates(n_vocab);
  for (auto _ : state) {
    for (std::size_t i = 0; i < n_vocab; ++i) {
      candidates[i] = {static_cast<llama_token>(i), logits[i], 0.0F};
    }
    llama_token_data_array array{candidates.data(), n_vocab, -1, false};
    llama_sampler_apply(chain.get(), &array);
    benchmark::DoNotOptimize(array.selected);
  }
  state.SetLabel(kRuleNames[state.range(0)]);
}

BENCHMARK(graft_sampler)
    ->ArgNames({"rule", "vocab", "flat"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5, 6}, {49152, 151936}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(llama_chain)
    ->ArgNames({"rule", "vocab", "flat"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5}, {49152, 151936}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace graft

BENCHMARK_MAIN();
