// SIGINT and SIGTERM as a flag: the first one is remembered, a second one ends the process at once.
// SIGHUP, where it is wanted, as a request to reload. install() functions belong to the main
// thread, before others start; the rest may be called by any thread.
#pragma once

namespace graft::cli {

void install_stop_signal();
// Requires: after install_stop_signal(). Without it SIGHUP ends the process, as for a terminal's
// end.
void install_reload_signal();
bool stop_requested();
// Blocks until something was asked for. A stop goes before a reload.
enum class Asked { kStop, kReload };
Asked wait_for_signal();

}  // namespace graft::cli
