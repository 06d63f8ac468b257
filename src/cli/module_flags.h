// The flags of `graft serve` about modules, its own and vLLM's, and what becomes of flags that it
// does not know: those of other servers are ignored with a warning, so that their command lines go
// on working. Internal to the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "cli/flags.h"

namespace graft::cli {

void add_serve_module_flags(CLI::App& app, ServeCommand& command, RawFlags& raw);

// A value of --lora-modules: NAME=PATH, or vLLM's {"name": ..., "path": ...}.
Result<ModuleFlag> parse_lora_module(const std::string& text);

// After parsing: fills in what `raw` says, and fits --ctx to --max-model-len. Errors name the flag.
Status finish_serve_module_flags(const CLI::App& app, const RawFlags& raw, ServeCommand& command);

// A warning for each flag of `app.remaining()`. Errors: kInvalidArgument for words that belong to
// no flag.
Result<std::vector<std::string>> warn_of_unknown_flags(const CLI::App& app);

}  // namespace graft::cli
