#include "grafting/backend.h"

#include <ggml-backend-impl.h>
#include <ggml-cpu.h>
#include <ggml-impl.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"

namespace graft {
namespace {

static_assert(GGML_BACKEND_API_VERSION == 2, "the private ggml structs belong to version 2");

// init_backend is not told for which context it is called, so a thread says it beforehand.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local GraphRewriter* t_current_rewriter = nullptr;

// State of one backend instance: the CPU backend that does the work, and who changes its graphs.
struct Instance {
  ggml_backend_t cpu = nullptr;
  GraphRewriter* rewriter = nullptr;
  std::vector<ggml_tensor*> rewritten;
};

Instance& instance_of(ggml_backend_t backend) { return *static_cast<Instance*>(backend->context); }

ggml_backend_dev_t cpu_device() {
  static const ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  return device;
}

// Graphs with equal non-zero ids are taken for the same graph; every rewritten one is another.
std::uint64_t next_graph_id() {
  static std::atomic<std::uint64_t> id{std::uint64_t{1} << 48U};
  return id.fetch_add(1, std::memory_order_relaxed);
}

std::span<ggml_tensor* const> nodes_of(const ggml_cgraph* graph) {
  return {graph->nodes, static_cast<std::size_t>(graph->n_nodes)};
}

ggml_status compute_graph(ggml_backend_t backend, ggml_cgraph* graph) {
  Instance& instance = instance_of(backend);
  if (instance.rewriter == nullptr) return ggml_backend_graph_compute(instance.cpu, graph);
  switch (instance.rewriter->rewrite(nodes_of(graph), instance.rewritten)) {
    case Rewrite::kPassThrough: return ggml_backend_graph_compute(instance.cpu, graph);
    case Rewrite::kRefused: return GGML_STATUS_FAILED;
    case Rewrite::kRewritten: break;
  }
  // The copy shares the hash set and the use counts, so that the CPU backend still fuses nodes.
  ggml_cgraph changed = *graph;
  changed.nodes = instance.rewritten.data();
  changed.n_nodes = static_cast<int>(instance.rewritten.size());
  changed.uid = next_graph_id();
  return ggml_backend_graph_compute(instance.cpu, &changed);
}

void optimize_graph(ggml_backend_t backend, ggml_cgraph* graph,
                    ggml_backend_graph_optimize_params* /*params*/) {
  Instance& instance = instance_of(backend);
  if (instance.rewriter != nullptr) instance.rewriter->graph_built(nodes_of(graph));
}

const char* backend_name(ggml_backend_t /*backend*/) { return "Graft"; }

void free_backend(ggml_backend_t backend) {
  const std::unique_ptr<ggml_backend> owned(backend);
  const std::unique_ptr<Instance> instance(static_cast<Instance*>(backend->context));
  ggml_backend_free(instance->cpu);
}

ggml_guid_t backend_guid() {
  static ggml_guid guid = {0x67, 0x72, 0x61, 0x66, 0x74, 0x2d, 0x62, 0x61,
                           0x63, 0x6b, 0x65, 0x6e, 0x64, 0x2d, 0x30, 0x31};
  return &guid;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char* params) {
  auto instance = std::make_unique<Instance>();
  instance->cpu = ggml_backend_dev_init(cpu_device(), params);
  if (instance->cpu == nullptr) return nullptr;
  instance->rewriter = t_current_rewriter;
  if (instance->rewriter != nullptr) {
    ggml_backend_cpu_set_n_threads(instance->cpu, instance->rewriter->n_threads());
    ggml_backend_cpu_set_threadpool(instance->cpu, instance->rewriter->pool());
  }
  auto backend = std::make_unique<ggml_backend>();
  backend->guid = backend_guid();
  backend->device = device;
  backend->context = instance.release();
  backend->iface = {};
  backend->iface.get_name = backend_name;
  backend->iface.free = free_backend;
  backend->iface.graph_compute = compute_graph;
  backend->iface.graph_optimize = optimize_graph;
  return backend.release();
}

// libllama sets the thread count of every backend; a pool of ours has a fixed size.
void set_n_threads(ggml_backend_t backend, int n_threads) {
  const Instance& instance = instance_of(backend);
  const int limit = instance.rewriter == nullptr ? n_threads : instance.rewriter->n_threads();
  ggml_backend_cpu_set_n_threads(instance.cpu, n_threads < limit ? n_threads : limit);
}

void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void* data) {
  ggml_backend_cpu_set_abort_callback(instance_of(backend).cpu, callback, data);
}

const char* device_name(ggml_backend_dev_t /*device*/) { return "GRAFT"; }
enum ggml_backend_dev_type device_type(ggml_backend_dev_t /*device*/) {
  return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}
bool device_supports_op(ggml_backend_dev_t /*device*/, const ggml_tensor* op) {
  return ggml_backend_dev_supports_op(cpu_device(), op);
}
bool device_supports_buft(ggml_backend_dev_t /*device*/, ggml_backend_buffer_type_t type) {
  return ggml_backend_dev_supports_buft(cpu_device(), type);
}
// The CPU's own type: another default type would split the graph at every norm.
ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t /*device*/) {
  return ggml_backend_cpu_buffer_type();
}

const char* reg_name(ggml_backend_reg_t /*reg*/) { return "Graft"; }
std::size_t reg_device_count(ggml_backend_reg_t /*reg*/) { return 1; }
ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, std::size_t /*index*/) {
  return static_cast<ggml_backend_dev_t>(reg->context);
}
void* reg_proc_address(ggml_backend_reg_t /*reg*/, const char* name) {
  if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) {
    return reinterpret_cast<void*>(set_n_threads);
  }
  if (std::strcmp(name, "ggml_backend_set_abort_callback") == 0) {
    return reinterpret_cast<void*>(set_abort_callback);
  }
  return nullptr;
}

// The device and its registry entry. ggml keeps pointers to them for the life of the process.
struct Registration {
  ggml_backend_reg reg = {};
  ggml_backend_device device = {};

  Registration() {
    GRAFT_CHECK(cpu_device() != nullptr);
    reg.api_version = GGML_BACKEND_API_VERSION;
    reg.iface = {reg_name, reg_device_count, reg_device, reg_proc_address};
    reg.context = &device;
    device.reg = &reg;
    device.iface = cpu_device()->iface;
    device.context = cpu_device()->context;
    device.iface.get_name = device_name;
    device.iface.get_type = device_type;
    device.iface.supports_op = device_supports_op;
    device.iface.supports_buft = device_supports_buft;
    device.iface.get_buffer_type = device_buffer_type;
    device.iface.init_backend = init_backend;
    ggml_backend_register(&reg);
  }
};

}  // namespace

void register_backend() { static const Registration registration; }

GraphRewriter* exchange_current_rewriter(GraphRewriter* rewriter) {
  return std::exchange(t_current_rewriter, rewriter);
}

}  // namespace graft
