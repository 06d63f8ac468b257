#include "grafting/backend.h"

#include <ggml-backend-impl.h>
#include <ggml-cpu.h>
#include <ggml-impl.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"

namespace graft {
namespace {

static_assert(GGML_BACKEND_API_VERSION == 2, "the private ggml structs belong to version 2");

// init_backend is not told for which context it is called, so a thread says it beforehand.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local GraphRewriter* t_current_rewriter = nullptr;

// State of one backend instance: the backend that does the work, and who changes its graphs.
struct Instance {
  ggml_backend_t inner = nullptr;
  GraphRewriter* rewriter = nullptr;
  int max_threads = 0;  // of a pool that is ours; 0 = libllama decides
  std::vector<ggml_tensor*> rewritten;
  std::uint64_t rewritten_id = 0;
};

Instance& instance_of(ggml_backend_t backend) { return *static_cast<Instance*>(backend->context); }
ggml_backend_t inner_of(ggml_backend_t backend) { return instance_of(backend).inner; }

// A device, its registry entry, and the device that they stand for. ggml keeps pointers to the
// first two.
struct Wrapping {
  ggml_backend_dev_t inner = nullptr;
  bool is_cpu = false;  // around the CPU device and of type ACCEL
  std::string name;
  ggml_backend_reg reg = {};
  ggml_backend_device device = {};
};

const Wrapping& wrapping_of(ggml_backend_dev_t device) {
  return *static_cast<const Wrapping*>(device->context);
}
ggml_backend_dev_t inner_of(ggml_backend_dev_t device) { return wrapping_of(device).inner; }

// Graphs with equal non-zero ids are taken for the same graph.
std::uint64_t next_graph_id() {
  static std::atomic<std::uint64_t> id{std::uint64_t{1} << 48U};
  return id.fetch_add(1, std::memory_order_relaxed);
}

std::span<ggml_tensor* const> nodes_of(const ggml_cgraph* graph) {
  return {graph->nodes, static_cast<std::size_t>(graph->n_nodes)};
}

ggml_status compute_graph(ggml_backend_t backend, ggml_cgraph* graph) {
  Instance& instance = instance_of(backend);
  if (instance.rewriter == nullptr) return ggml_backend_graph_compute_async(instance.inner, graph);
  // The rewriter writes tensors that the last computation may still read.
  ggml_backend_synchronize(instance.inner);
  switch (instance.rewriter->rewrite(nodes_of(graph), instance.rewritten)) {
    case Rewrite::kPassThrough: return ggml_backend_graph_compute_async(instance.inner, graph);
    case Rewrite::kRefused: return GGML_STATUS_FAILED;
    case Rewrite::kRewritten: instance.rewritten_id = next_graph_id(); break;
    case Rewrite::kUnchanged: break;
  }
  // The copy shares the hash set and the use counts, so that the inner backend still fuses nodes.
  ggml_cgraph changed = *graph;
  changed.nodes = instance.rewritten.data();
  changed.n_nodes = static_cast<int>(instance.rewritten.size());
  changed.uid = instance.rewritten_id;
  return ggml_backend_graph_compute_async(instance.inner, &changed);
}

// The inner backend may move nodes, and asks here for the memory of those that it fuses.
void optimize_graph(ggml_backend_t backend, ggml_cgraph* graph,
                    ggml_backend_graph_optimize_params* params) {
  Instance& instance = instance_of(backend);
  if (instance.inner->iface.graph_optimize != nullptr) {
    instance.inner->iface.graph_optimize(instance.inner, graph, params);
  }
  if (instance.rewriter != nullptr) instance.rewriter->graph_built(nodes_of(graph));
}

const char* backend_name(ggml_backend_t /*backend*/) { return "Graft"; }

void free_backend(ggml_backend_t backend) {
  const std::unique_ptr<ggml_backend> owned(backend);
  const std::unique_ptr<Instance> instance(static_cast<Instance*>(backend->context));
  ggml_backend_free(instance->inner);
}

ggml_guid_t backend_guid() {
  static ggml_guid guid = {0x67, 0x72, 0x61, 0x66, 0x74, 0x2d, 0x62, 0x61,
                           0x63, 0x6b, 0x65, 0x6e, 0x64, 0x2d, 0x30, 0x31};
  return &guid;
}

ggml_backend_t unwrapped(ggml_backend_t backend) {
  return ggml_guid_matches(backend->guid, backend_guid()) ? inner_of(backend) : backend;
}

// Calls of one backend whose arguments need no translation.
void set_tensor_async(ggml_backend_t backend, ggml_tensor* tensor, const void* from,
                      std::size_t offset, std::size_t size) {
  inner_of(backend)->iface.set_tensor_async(inner_of(backend), tensor, from, offset, size);
}
void get_tensor_async(ggml_backend_t backend, const ggml_tensor* tensor, void* to,
                      std::size_t offset, std::size_t size) {
  inner_of(backend)->iface.get_tensor_async(inner_of(backend), tensor, to, offset, size);
}
// NOLINTBEGIN(readability-function-size): the parameters are ggml's
void set_tensor_2d_async(ggml_backend_t backend, ggml_tensor* tensor, const void* from,
                         std::size_t offset, std::size_t size, std::size_t n_copies,
                         std::size_t stride_tensor, std::size_t stride_from) {
  inner_of(backend)->iface.set_tensor_2d_async(inner_of(backend), tensor, from, offset, size,
                                               n_copies, stride_tensor, stride_from);
}
void get_tensor_2d_async(ggml_backend_t backend, const ggml_tensor* tensor, void* to,
                         std::size_t offset, std::size_t size, std::size_t n_copies,
                         std::size_t stride_tensor, std::size_t stride_to) {
  inner_of(backend)->iface.get_tensor_2d_async(inner_of(backend), tensor, to, offset, size,
                                               n_copies, stride_tensor, stride_to);
}
// NOLINTEND(readability-function-size)
bool copy_tensor_async(ggml_backend_t from, ggml_backend_t to, const ggml_tensor* source,
                       ggml_tensor* target) {
  return inner_of(to)->iface.cpy_tensor_async(unwrapped(from), inner_of(to), source, target);
}
void synchronize(ggml_backend_t backend) { ggml_backend_synchronize(inner_of(backend)); }
void record_event(ggml_backend_t backend, ggml_backend_event_t event) {
  ggml_backend_event_record(event, inner_of(backend));
}
void wait_for_event(ggml_backend_t backend, ggml_backend_event_t event) {
  ggml_backend_event_wait(inner_of(backend), event);
}

// Forwards what the inner backend has: ggml takes a null function for "cannot".
ggml_backend_i backend_calls(const ggml_backend_i& inner) {
  ggml_backend_i calls = {};
  calls.get_name = backend_name;
  calls.free = free_backend;
  calls.graph_compute = compute_graph;
  calls.graph_optimize = optimize_graph;
  if (inner.set_tensor_async != nullptr) calls.set_tensor_async = set_tensor_async;
  if (inner.get_tensor_async != nullptr) calls.get_tensor_async = get_tensor_async;
  if (inner.set_tensor_2d_async != nullptr) calls.set_tensor_2d_async = set_tensor_2d_async;
  if (inner.get_tensor_2d_async != nullptr) calls.get_tensor_2d_async = get_tensor_2d_async;
  if (inner.cpy_tensor_async != nullptr) calls.cpy_tensor_async = copy_tensor_async;
  if (inner.synchronize != nullptr) calls.synchronize = synchronize;
  if (inner.event_record != nullptr) calls.event_record = record_event;
  if (inner.event_wait != nullptr) calls.event_wait = wait_for_event;
  return calls;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char* params) {
  auto instance = std::make_unique<Instance>();
  instance->inner = ggml_backend_dev_init(inner_of(device), params);
  if (instance->inner == nullptr) return nullptr;
  if (GraphRewriter* current = t_current_rewriter; current != nullptr) {
    const ggml_backend_device* wanted = wrapping_of(device).is_cpu ? nullptr : device;
    if (current->device() == wanted) instance->rewriter = current;
    if (ggml_backend_is_cpu(instance->inner)) {
      instance->max_threads = current->n_threads();
      ggml_backend_cpu_set_n_threads(instance->inner, instance->max_threads);
      ggml_backend_cpu_set_threadpool(instance->inner, current->pool());
    }
  }
  auto backend = std::make_unique<ggml_backend>();
  backend->guid = backend_guid();
  backend->device = device;
  backend->iface = backend_calls(instance->inner->iface);
  backend->context = instance.release();
  return backend.release();
}

// libllama sets the thread count of every backend; a pool of ours has a fixed size.
void set_n_threads(ggml_backend_t backend, int n_threads) {
  const Instance& instance = instance_of(backend);
  const int limit = instance.max_threads == 0 ? n_threads : instance.max_threads;
  ggml_backend_cpu_set_n_threads(instance.inner, n_threads < limit ? n_threads : limit);
}

void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void* data) {
  ggml_backend_cpu_set_abort_callback(inner_of(backend), callback, data);
}

// Every call reaches the inner device with its own pointer: some compare it with a buffer's device.
const char* device_name(ggml_backend_dev_t device) { return wrapping_of(device).name.c_str(); }
const char* device_description(ggml_backend_dev_t device) {
  return ggml_backend_dev_description(inner_of(device));
}
void device_memory(ggml_backend_dev_t device, std::size_t* free, std::size_t* total) {
  ggml_backend_dev_memory(inner_of(device), free, total);
}
enum ggml_backend_dev_type device_type(ggml_backend_dev_t device) {
  return wrapping_of(device).is_cpu ? GGML_BACKEND_DEVICE_TYPE_ACCEL : GGML_BACKEND_DEVICE_TYPE_GPU;
}
void device_props(ggml_backend_dev_t device, ggml_backend_dev_props* props) {
  ggml_backend_dev_get_props(inner_of(device), props);
  props->name = device_name(device);
  props->type = device_type(device);
}
// For the CPU its own type: another default type would split the graph at every norm.
ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t device) {
  return ggml_backend_dev_buffer_type(inner_of(device));
}
ggml_backend_buffer_type_t device_host_buffer_type(ggml_backend_dev_t device) {
  return ggml_backend_dev_host_buffer_type(inner_of(device));
}
ggml_backend_buffer_t device_buffer_from_host(ggml_backend_dev_t device, void* start,
                                              std::size_t size, std::size_t max_tensor_size) {
  return ggml_backend_dev_buffer_from_host_ptr(inner_of(device), start, size, max_tensor_size);
}
bool device_supports_op(ggml_backend_dev_t device, const ggml_tensor* op) {
  return ggml_backend_dev_supports_op(inner_of(device), op);
}
bool device_supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
  return ggml_backend_dev_supports_buft(inner_of(device), type);
}
bool device_offload_op(ggml_backend_dev_t device, const ggml_tensor* op) {
  return ggml_backend_dev_offload_op(inner_of(device), op);
}
ggml_backend_event_t device_new_event(ggml_backend_dev_t device) {
  return ggml_backend_event_new(inner_of(device));
}
// An event knows the inner device, so ggml calls that one.
void device_free_event(ggml_backend_dev_t /*device*/, ggml_backend_event_t event) {
  ggml_backend_event_free(event);
}
void device_wait_for_event(ggml_backend_dev_t /*device*/, ggml_backend_event_t event) {
  ggml_backend_event_synchronize(event);
}

ggml_backend_device_i device_calls(const ggml_backend_device_i& inner) {
  ggml_backend_device_i calls = {};
  calls.get_name = device_name;
  calls.get_description = device_description;
  calls.get_memory = device_memory;
  calls.get_type = device_type;
  calls.get_props = device_props;
  calls.init_backend = init_backend;
  calls.get_buffer_type = device_buffer_type;
  calls.supports_op = device_supports_op;
  calls.supports_buft = device_supports_buft;
  if (inner.get_host_buffer_type != nullptr) calls.get_host_buffer_type = device_host_buffer_type;
  if (inner.buffer_from_host_ptr != nullptr) calls.buffer_from_host_ptr = device_buffer_from_host;
  if (inner.offload_op != nullptr) calls.offload_op = device_offload_op;
  if (inner.event_new != nullptr) calls.event_new = device_new_event;
  if (inner.event_free != nullptr) calls.event_free = device_free_event;
  if (inner.event_synchronize != nullptr) calls.event_synchronize = device_wait_for_event;
  return calls;
}

const Wrapping& wrapping_of(ggml_backend_reg_t reg) {
  return *static_cast<const Wrapping*>(reg->context);
}

const char* reg_name(ggml_backend_reg_t /*reg*/) { return "Graft"; }
std::size_t reg_device_count(ggml_backend_reg_t /*reg*/) { return 1; }
ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, std::size_t /*index*/) {
  return const_cast<ggml_backend_dev_t>(&wrapping_of(reg).device);
}

// Functions that take a backend must be ours. Of the inner device's, those are forwarded that take
// none; the rest (communication between GPUs) is not used with one device.
void* reg_proc_address(ggml_backend_reg_t reg, const char* name) {
  const Wrapping& wrapping = wrapping_of(reg);
  if (ggml_backend_dev_type(wrapping.inner) == GGML_BACKEND_DEVICE_TYPE_CPU) {
    if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) {
      return reinterpret_cast<void*>(set_n_threads);
    }
    if (std::strcmp(name, "ggml_backend_set_abort_callback") == 0) {
      return reinterpret_cast<void*>(set_abort_callback);
    }
    return nullptr;
  }
  constexpr std::array<const char*, 3> kForwarded = {"ggml_backend_register_host_buffer",
                                                     "ggml_backend_unregister_host_buffer",
                                                     "ggml_backend_get_features"};
  for (const char* forwarded : kForwarded) {
    if (std::strcmp(name, forwarded) == 0) {
      return ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(wrapping.inner), name);
    }
  }
  return nullptr;
}

std::unique_ptr<Wrapping> make_wrapping(ggml_backend_dev_t inner, bool is_cpu) {
  GRAFT_CHECK(inner != nullptr);
  auto wrapping = std::make_unique<Wrapping>();
  wrapping->inner = inner;
  wrapping->is_cpu = is_cpu;
  wrapping->name = is_cpu ? "GRAFT" : std::string("GRAFT-") + ggml_backend_dev_name(inner);
  wrapping->reg.api_version = GGML_BACKEND_API_VERSION;
  wrapping->reg.iface = {reg_name, reg_device_count, reg_device, reg_proc_address};
  wrapping->reg.context = wrapping.get();
  wrapping->device.reg = &wrapping->reg;
  wrapping->device.iface = device_calls(inner->iface);
  wrapping->device.context = wrapping.get();
  return wrapping;
}

}  // namespace

void register_backend() {
  static const Wrapping* const wrapping = [] {
    auto made = make_wrapping(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), true);
    ggml_backend_register(&made->reg);
    return made.release();
  }();
  GRAFT_CHECK(wrapping != nullptr);
}

ggml_backend_device* wrap_device(ggml_backend_device* inner) {
  // Never freed: models that other statics own still point to the devices when the process ends.
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const wrappings =
      std::make_unique<std::map<ggml_backend_device*, std::unique_ptr<Wrapping>>>().release();
  std::unique_ptr<Wrapping>& wrapping = (*wrappings)[inner];
  if (wrapping == nullptr) wrapping = make_wrapping(inner, false);
  return &wrapping->device;
}

GraphRewriter* exchange_current_rewriter(GraphRewriter* rewriter) {
  return std::exchange(t_current_rewriter, rewriter);
}

}  // namespace graft
