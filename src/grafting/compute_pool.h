// ComputePool: ggml's own thread pool, owned by Graft, and a way to run other work on the same
// threads between steps. The calling thread is one of the pool's threads. Belongs to the thread
// that calls llama_decode.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

struct ggml_threadpool;

namespace graft {

class ComputePool {
 public:
  // `poll`: 0..100, how long idle threads spin before they sleep.
  ComputePool(std::int32_t n_threads, std::uint32_t poll);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  ggml_threadpool* get() const;
  std::int32_t n_threads() const { return n_threads_; }

  // Runs work(ith, nth) once on every thread and waits for all of them.
  void run(const std::function<void(int ith, int nth)>& work);

 private:
  struct Task;
  std::int32_t n_threads_;
  std::unique_ptr<Task> task_;
};

}  // namespace graft
