#include "grafting/compute_pool.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <vector>

#include "base/check.h"

namespace graft {

// The pool, and a graph of one custom op whose threads call the current work.
struct ComputePool::Task {
  ggml_threadpool* pool = nullptr;
  ggml_context* context = nullptr;
  ggml_cgraph* graph = nullptr;
  const std::function<void(int, int)>* work = nullptr;

  static void run(ggml_tensor* /*target*/, int ith, int nth, void* task) {
    (*static_cast<Task*>(task)->work)(ith, nth);
  }

  Task(std::int32_t n_threads, std::uint32_t poll) {
    ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    params.poll = poll;
    pool = ggml_threadpool_new(&params);
    GRAFT_CHECK(pool != nullptr);
    const std::size_t bytes =
        ggml_graph_overhead_custom(2, /*grads=*/false) + 4 * ggml_tensor_overhead();
    context = ggml_init({bytes, nullptr, /*no_alloc=*/false});
    GRAFT_CHECK(context != nullptr);
    ggml_tensor* op =
        ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, run, GGML_N_TASKS_MAX, this);
    op->flags |= GGML_TENSOR_FLAG_COMPUTE;
    graph = ggml_new_graph_custom(context, 2, /*grads=*/false);
    ggml_graph_add_node(graph, op);
  }
  ~Task() {
    ggml_free(context);
    ggml_threadpool_free(pool);
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
};

ComputePool::ComputePool(std::int32_t n_threads, std::uint32_t poll)
    : n_threads_(n_threads), task_(std::make_unique<Task>(n_threads, poll)) {}
ComputePool::~ComputePool() = default;

ggml_threadpool* ComputePool::get() const { return task_->pool; }

void ComputePool::run(const std::function<void(int ith, int nth)>& work) {
  task_->work = &work;
  ggml_cplan plan = ggml_graph_plan(task_->graph, n_threads_, task_->pool);
  std::vector<std::uint8_t> buffer(plan.work_size);
  plan.work_data = buffer.data();
  GRAFT_CHECK(ggml_graph_compute(task_->graph, &plan) == GGML_STATUS_SUCCESS);
  task_->work = nullptr;
}

}  // namespace graft
