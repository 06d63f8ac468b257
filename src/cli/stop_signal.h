// SIGINT and SIGTERM as a flag: the first one is remembered, a second one ends the process at once.
// install() belongs to the main thread, before others start; the rest may be called by any thread.
#pragma once

namespace graft::cli {

void install_stop_signal();
bool stop_requested();
// Blocks until a stop was asked for.
void wait_for_stop();

}  // namespace graft::cli
