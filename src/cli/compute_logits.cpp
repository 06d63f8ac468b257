#include "cli/compute_logits.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace graft::cli {

Result<std::vector<LogitRow>> compute_logits(Engine& engine, std::span<const TokenId> tokens,
                                             const LogitOptions& options) {
  const auto n_tokens = static_cast<std::int32_t>(tokens.size());
  if (tokens.size() > static_cast<std::size_t>(engine.max_rows())) {
    return invalid_argument("the text has " + std::to_string(tokens.size()) +
                            " tokens; one step takes " + std::to_string(engine.max_rows()) +
                            " (--batch)");
  }
  const std::optional<std::int32_t> sequence = engine.acquire_sequence();
  GRAFT_CHECK(sequence.has_value());
  StepPlan plan;
  if (!options.modules.empty()) plan.sets = {options.modules};
  const std::int32_t n_outputs = std::min(options.n_outputs, n_tokens);
  for (std::int32_t i = 0; i < n_tokens; ++i) {
    plan.rows.push_back({.token = tokens[static_cast<std::size_t>(i)],
                         .position = i,
                         .sequence = *sequence,
                         .is_output = i >= n_tokens - n_outputs,
                         .set = options.modules.empty() ? -1 : 0});
  }
  const StepOutcome outcome = engine.step(plan);
  std::vector<LogitRow> rows;
  for (std::int32_t i = n_tokens - n_outputs; i < n_tokens && outcome.kind == StepOutcome::kDone;
       ++i) {
    const auto logits = engine.logits(i);
    rows.emplace_back(logits.begin(), logits.end());
  }
  engine.release_sequence(*sequence);
  if (outcome.kind != StepOutcome::kDone) return internal_error(outcome.message);
  return rows;
}

}  // namespace graft::cli
