#include <re2/re2.h>

#include <cmath>
#include <utility>

#include "modules/formats/peft_config.h"

namespace graft {
namespace {

struct CompiledPattern {
  std::unique_ptr<re2::RE2> regex;
  double value = 0;
};

// Python's re.match(r"(.*\.)?(" + key + r")$", path), in linear time.
Result<std::vector<CompiledPattern>> compile(const std::vector<PeftPattern>& patterns,
                                             const std::string& field) {
  std::vector<CompiledPattern> compiled;
  for (const PeftPattern& entry : patterns) {
    re2::RE2::Options options;
    options.set_log_errors(false);
    options.set_max_mem(1 << 20);
    auto regex = std::make_unique<re2::RE2>("(.*\\.)?(" + entry.pattern + ")$", options);
    if (!regex->ok()) {
      return invalid_argument(
          "adapter_config.json: the key '" + entry.pattern + "' of " + field +
          " is not a regular expression that can be matched in linear time: " + regex->error());
    }
    compiled.push_back({std::move(regex), entry.value});
  }
  return compiled;
}

double first_match(const std::vector<CompiledPattern>& patterns, const std::string& path,
                   double otherwise) {
  for (const CompiledPattern& entry : patterns) {
    if (re2::RE2::FullMatch(path, *entry.regex)) return entry.value;
  }
  return otherwise;
}

}  // namespace

struct PeftScaleRule::State {
  std::vector<CompiledPattern> ranks;
  std::vector<CompiledPattern> alphas;
  double r = 8;
  double alpha = 8;
  bool use_rslora = false;
};

PeftScaleRule::PeftScaleRule(std::unique_ptr<State> state) : state_(std::move(state)) {}
PeftScaleRule::~PeftScaleRule() = default;
PeftScaleRule::PeftScaleRule(PeftScaleRule&&) noexcept = default;
PeftScaleRule& PeftScaleRule::operator=(PeftScaleRule&&) noexcept = default;

Result<PeftScaleRule> PeftScaleRule::create(const PeftConfig& config) {
  auto state = std::make_unique<State>();
  GRAFT_ASSIGN_OR_RETURN(state->ranks, compile(config.rank_pattern, "rank_pattern"));
  GRAFT_ASSIGN_OR_RETURN(state->alphas, compile(config.alpha_pattern, "alpha_pattern"));
  state->r = static_cast<double>(config.r);
  state->alpha = config.lora_alpha;
  state->use_rslora = config.use_rslora;
  return PeftScaleRule(std::move(state));
}

double PeftScaleRule::scale(const std::string& module_path, std::int64_t rank) const {
  const double alpha = first_match(state_->alphas, module_path, state_->alpha);
  const auto r = static_cast<double>(rank);
  return alpha / (state_->use_rslora ? std::sqrt(r) : r);
}

std::int64_t PeftScaleRule::announced_rank(const std::string& module_path) const {
  return static_cast<std::int64_t>(first_match(state_->ranks, module_path, state_->r));
}

}  // namespace graft
