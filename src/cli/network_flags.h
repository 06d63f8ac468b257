// The flags of `graft serve` that say who can reach it and what a client may cost: address, TLS,
// API keys, limits and timeouts. Internal to the command line.
#pragma once

#include <CLI/CLI.hpp>

#include "base/result.h"
#include "cli/command.h"

namespace graft::cli {

void add_network_flags(CLI::App& app, ServeCommand& command);
void add_new_key_flags(CLI::App& app, NewKeyCommand& command);

// What no single flag can say. Fills in what one flag says for another.
Status finish_network_flags(ServeCommand& command);

}  // namespace graft::cli
