// ModulePresence: RAII. Counts one request as waiting, then as running, in the series of its
// modules, and no longer when it is destroyed. Movable; used by one thread at a time.
#pragma once

#include <utility>
#include <vector>

#include "metrics/serving_counters.h"

namespace graft {

class ModulePresence {
 public:
  ModulePresence() = default;
  // Begins as waiting. The series outlive this.
  explicit ModulePresence(std::vector<ModuleSeries*> series) : series_(std::move(series)) {
    change(&ModuleSeries::n_waiting, 1);
  }
  ~ModulePresence() { change(gauge(), -1); }
  ModulePresence(ModulePresence&& other) noexcept
      : series_(std::exchange(other.series_, {})), running_(other.running_) {}
  ModulePresence& operator=(ModulePresence&& other) noexcept {
    if (this == &other) return *this;
    change(gauge(), -1);
    series_ = std::exchange(other.series_, {});
    running_ = other.running_;
    return *this;
  }
  ModulePresence(const ModulePresence&) = delete;
  ModulePresence& operator=(const ModulePresence&) = delete;

  void run() { move_to(true); }
  void wait() { move_to(false); }
  SeriesList series() const { return series_; }

 private:
  using Gauge = ModuleSeries::Counter ModuleSeries::*;

  Gauge gauge() const { return running_ ? &ModuleSeries::n_running : &ModuleSeries::n_waiting; }
  void change(Gauge gauge, std::int64_t by) {
    for (ModuleSeries* one : series_) (one->*gauge).fetch_add(by, std::memory_order_relaxed);
  }
  void move_to(bool running) {
    if (running == running_) return;
    change(gauge(), -1);
    running_ = running;
    change(gauge(), 1);
  }

  std::vector<ModuleSeries*> series_;
  bool running_ = false;
};

}  // namespace graft
