// From argv to a Command. The only files that know CLI11 are this one's and flags.cpp. Pure: prints
// nothing, opens nothing.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace graft::cli {

// `arguments` without the program's name. Faults become a SayCommand with kExitUsage.
Command parse_command_line(const std::vector<std::string>& arguments);

}  // namespace graft::cli
