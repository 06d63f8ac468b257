#include "cli/stop_signal.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace graft::cli {
namespace {

// A signal handler can reach nothing but globals.
std::atomic<int> g_n_signals{0};  // NOLINT
sem_t g_stop;                     // NOLINT: posting a semaphore is allowed in a handler

void on_signal(int number) {
  if (g_n_signals.fetch_add(1) > 0) _exit(128 + number);
  sem_post(&g_stop);
}

}  // namespace

void install_stop_signal() {
  sem_init(&g_stop, 0, 0);
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // a blocked read ends, so that a conversation can
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return g_n_signals.load() > 0; }

void wait_for_stop() {
  while (!stop_requested()) {
    if (sem_wait(&g_stop) != 0 && errno != EINTR) return;
  }
}

}  // namespace graft::cli
