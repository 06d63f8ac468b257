// PreparePool: the threads for work on requests that would hold up other streams if an io thread
// did it: JSON, templates, tokenising. Bounded: a full queue is an error, which becomes 429.
// Thread-safe. The destructor finishes what is queued.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "base/result.h"

namespace graft {

class PrepareJob {
 public:
  virtual ~PrepareJob() = default;
  virtual void run() noexcept = 0;
};

class PreparePool {
 public:
  PreparePool(int n_threads, std::size_t capacity);
  ~PreparePool();
  PreparePool(const PreparePool&) = delete;
  PreparePool& operator=(const PreparePool&) = delete;

  Status submit(std::unique_ptr<PrepareJob> job) { return queue_.push(std::move(job)); }

 private:
  void run();

  Queue<std::unique_ptr<PrepareJob>> queue_;
  std::vector<std::jthread> threads_;
};

}  // namespace graft
