// Grafter: connects one llama_context to the grafting backend, a ggml device that delegates to the
// CPU or to a GPU and changes the node list of each step: it inserts module computations behind the
// sites they extend and, on the CPU, replaces attention nodes by a step whose cost follows each row
// (design sections 2, 2b).
//
// Usage: register_grafting_device() before the first model is loaded; then
//   Grafter grafter(options);
//   { Grafter::Binding binding(grafter); context = llama_init_from_model(...); }
//   per step: grafter.begin_step(plan); llama_decode(...); grafter.end_step();
// The context must be created with flash attention ENABLED (AUTO with a device) and must be freed
// before the grafter.
// A context made without a binding gets a backend that passes everything through.
//
// Threads: everything but check_attachable() and sites() belongs to the thread that calls
// llama_decode. After the context exists, sites() is immutable and any thread may read it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "grafting/site_table.h"
#include "grafting/step_plan.h"
#include "modules/residency/resident_adapter.h"

struct ggml_backend_device;

namespace graft {

// Registers the device with ggml; idempotent. Requires: called before any model is loaded, and by
// one thread.
void register_grafting_device();

// The device to load a model on to compute it on the first GPU that ggml has. It lives as long as
// the process. Errors: kNotSupported. Threads: as register_grafting_device().
Result<ggml_backend_device*> grafting_gpu_device();

// A grafting device of type GPU around any other, e.g. the CPU device in tests. Lives as long as
// the process.
ggml_backend_device* grafting_device_around(ggml_backend_device* inner);

// How module computations become graph nodes.
enum class EmitterKind : std::uint8_t {
  kFused,  // one custom op per site (FusedStep)
  kOps,    // standard ggml operations (OpsStep): slower, and not batch-invariant to the bit
};

struct GrafterOptions {
  std::int32_t n_threads = 1;  // size of the compute pool, the calling thread included
  std::uint32_t poll = 50;     // 0..100: how long idle pool threads spin before they sleep
  bool attention = true;       // replace ggml's attention by the batch-invariant step
  bool deterministic = false;  // compute matmuls by ExactMatmul; refuse steps with any other
  // A grafting device of type GPU, which the model was loaded on; null = the CPU. With a device the
  // emitter is kOps, attention is the device's own, and `deterministic` is refused; rows are
  // compared with the plan by their number alone, since the inputs are on the device.
  ggml_backend_device* device = nullptr;
  EmitterKind emitter = EmitterKind::kFused;  // kOps with `deterministic`: modules are refused
};

struct GrafterStats {
  std::int64_t n_computes = 0;  // graph computations with a plan
  std::int64_t n_graph_builds = 0;
  std::int64_t n_module_nodes = 0;             // inserted into the last step
  std::int64_t n_attention_nodes = 0;          // replaced in the last step
  std::int64_t n_foreign_attention_nodes = 0;  // left to ggml in the last step
  std::int64_t n_exact_matmuls = 0;            // replaced in the last step
  std::int64_t prepare_ns = 0;                 // of the last step: all our work outside of kernels
};

class Grafter {
 public:
  explicit Grafter(const GrafterOptions& options);
  ~Grafter();
  Grafter(const Grafter&) = delete;
  Grafter& operator=(const Grafter&) = delete;

  // While it lives, contexts created on this thread are connected to the grafter.
  class Binding {
   public:
    explicit Binding(Grafter& grafter);
    ~Binding();
    Binding(const Binding&) = delete;
    Binding& operator=(const Binding&) = delete;
  };

  // Every site that the model's graphs have, found while the context reserved its buffers.
  const SiteTable& sites() const;

  // Whether every term of `adapter` has a site of matching shape. Errors name the tensor.
  Status check_attachable(const ResidentAdapter& adapter) const;

  // The plan of the next llama_decode; borrowed until end_step(). A decode outside of a step is
  // computed without modules (warm-up, oracles).
  void begin_step(const StepPlan& plan);
  void end_step();

  // The final state of a tapped row of the last step's plan, valid until the next begin_step().
  // Requires: the step was computed.
  std::span<const float> state(std::size_t row) const;
  // Values of a state; 0 when rows cannot be tapped: the graphs have no node that is known to hold
  // the states, or it is on a device.
  std::int64_t n_state_values() const;

  // Why the last step was refused by the run-time checks; empty when it was not.
  const std::string& last_error() const;

  // Forgets what was looked up for an adapter. Must be called before one that took part in a step
  // is destroyed: another could come to live at its address.
  void forget(const ResidentAdapter* adapter);

  // After a state restore: the positions of all cells that `sequence` has, in the order of the
  // cells. The next step with a row of it learns from its mask which cells those are; until then
  // the sequence must not change otherwise. An empty list takes the promise back.
  void supply_positions(std::int32_t sequence, std::vector<std::int32_t> positions);

  // Why attention nodes are left to ggml, one line per reason; empty when none are.
  std::string attention_notes() const;

  // A matmul that `deterministic` does not cover, and why; empty when no graph had one so far.
  std::string uncovered_matmul() const;

  void set_attention(bool enabled);  // for measurements

  // Runs `work(ith, nth)` on all threads of the compute pool, the caller included, and waits.
  // Requires: not called from inside a step.
  void run_parallel(const std::function<void(int ith, int nth)>& work);

  const GrafterStats& stats() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace graft
