// The subcommands other than serve, which main.cpp wires: each runs to its end on the calling
// thread and returns the process's exit status. Results go to standard output, the rest to
// standard error.
#pragma once

#include "cli/command.h"

namespace graft::cli {

int run(const ChatCommand& command);        // chat.cpp
int run(const InspectCommand& command);     // inspect.cpp
int run(const ProbeCommand& command);       // probe.cpp
int run(const DoctorCommand& command);      // doctor.cpp
int run(const BenchCommand& command);       // bench.cpp
int run(const BenchServeCommand& command);  // bench_serve.cpp
int run(const NewKeyCommand& command);      // new_key.cpp

}  // namespace graft::cli
