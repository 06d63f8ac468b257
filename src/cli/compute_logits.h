// Logits of a text, straight from an engine that no loop uses. For probe and doctor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/request.h"
#include "engine/engine.h"

namespace graft::cli {

using LogitRow = std::vector<float>;

struct LogitOptions {
  std::vector<PlannedAttachment> modules = {};  // that act on every row
  std::int32_t n_outputs = 1;                   // of the last tokens; at most max_sequences()
};

// In one step. Errors: more tokens than a step takes, or the engine's. Requires: a free sequence.
Result<std::vector<LogitRow>> compute_logits(Engine& engine, std::span<const TokenId> tokens,
                                             const LogitOptions& options);

}  // namespace graft::cli
