#include "cli/stop_signal.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace graft::cli {
namespace {

// A signal handler can reach nothing but globals.
std::atomic<int> g_n_signals{0};  // NOLINT
sem_t g_asked;                    // NOLINT: posting a semaphore is allowed in a handler

void on_signal(int number) {
  if (g_n_signals.fetch_add(1) > 0) _exit(128 + number);
  sem_post(&g_asked);
}

void on_reload(int) { sem_post(&g_asked); }

void install(void (*function)(int), std::initializer_list<int> signals) {
  struct sigaction action {};
  action.sa_handler = function;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // a blocked read ends, so that a conversation can
  for (const int number : signals) sigaction(number, &action, nullptr);
}

}  // namespace

void install_stop_signal() {
  sem_init(&g_asked, 0, 0);
  install(on_signal, {SIGINT, SIGTERM});
}

void install_reload_signal() { install(on_reload, {SIGHUP}); }

bool stop_requested() { return g_n_signals.load() > 0; }

Asked wait_for_signal() {
  while (!stop_requested()) {
    if (sem_wait(&g_asked) == 0) return stop_requested() ? Asked::kStop : Asked::kReload;
    if (errno != EINTR) break;
  }
  return Asked::kStop;
}

}  // namespace graft::cli
