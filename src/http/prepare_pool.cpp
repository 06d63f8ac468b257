#include "http/prepare_pool.h"

namespace graft {

PreparePool::PreparePool(int n_threads, std::size_t capacity) : queue_(capacity) {
  for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { run(); });
}

PreparePool::~PreparePool() { queue_.close(); }

void PreparePool::run() {
  while (auto job = queue_.pop()) (*job)->run();
}

}  // namespace graft
