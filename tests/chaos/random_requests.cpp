#include "chaos/random_requests.h"

#include <utility>

namespace graft {

RandomRequests::RandomRequests(RandomRequestOptions options)
    : options_(std::move(options)), random_(options_.seed) {
  make_prompts();
}

void RandomRequests::make_prompts() {
  std::mt19937 random(7);
  const auto append = [&](std::vector<TokenId>& tokens, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      tokens.push_back(static_cast<TokenId>(random() % options_.n_vocab));
    }
  };
  std::vector<std::vector<TokenId>> stems(options_.n_stems);
  for (auto& stem : stems) append(stem, options_.max_stem_tokens);
  for (std::size_t i = 0; i < options_.n_prompts; ++i) {
    std::vector<TokenId> prompt = stems[i % stems.size()];
    prompt.resize(options_.max_stem_tokens / 2 + random() % (options_.max_stem_tokens / 2));
    append(prompt, 1 + random() % 8);
    prompts_.push_back(std::move(prompt));
  }
}

RandomRequest RandomRequests::next(const RegistrySnapshot& now) {
  RandomRequest made;
  GenerationRequest& request = made.request;
  request.prompt = prompts_[below(prompts_.size())];
  request.sampling.temperature = 0;
  request.sampling.n_logprobs = 2;
  request.stop.max_tokens =
      1 + static_cast<std::int32_t>(below(static_cast<std::size_t>(options_.max_tokens)));
  choose_modules(made);
  if (below(5) == 0) {
    made.leaves = below(2) == 0 ? RandomRequest::Leaves::kCancels : RandomRequest::Leaves::kRefuses;
    made.after_tokens = static_cast<std::int32_t>(below(6));
  }
  if (!now.modules.empty() && below(8) == 0) {
    const ModuleVersion& module = *now.modules[below(now.modules.size())];
    pinned_ = module.name + "@" + module.digest().substr(0, 8);
  }
  return made;
}

std::string RandomRequests::any_name() {
  return below(50) == 0 ? "nobody" : options_.names[below(options_.names.size())];
}

void RandomRequests::choose_modules(RandomRequest& made) {
  const std::size_t kind = below(10);
  if (kind == 0) return;  // the base
  if (kind == 1 && !pinned_.empty()) {
    made.model = pinned_;
  } else if (kind < 4) {
    made.model = any_name();
  } else if (kind < 7) {
    made.choices = {{any_name(), {}, any_scale()}};
  } else {
    made.choices = {{any_name(), {}, any_scale()}, {any_name(), {}, any_scale()}};
    while (made.choices[1].name == made.choices[0].name) made.choices[1].name = any_name();
  }
}

}  // namespace graft
