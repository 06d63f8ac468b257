// Emitter: turns the site work of a step into graph nodes. Two kinds stand behind it: FusedStep
// (custom ops, for the CPU) and OpsStep (standard ggml operations, for any device).
//
// Called by the thread that calls llama_decode, before the graph is computed. What prepare() makes
// stays right as long as the graph is reused and the same modules act on the same rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "grafting/module_step.h"

struct ggml_context;
struct ggml_tensor;

namespace graft {

// A node to compute behind the node at `position` of the graph's list. Several may stand behind one
// position: they are computed in the order of the list of insertions.
struct Insertion {
  std::int32_t position = 0;
  ggml_tensor* op = nullptr;
};

class Emitter {
 public:
  virtual ~Emitter() = default;

  // Tensors that prepare() creates at most.
  virtual std::size_t n_tensors(std::span<const SiteWork> work) const = 0;

  // Creates the nodes in `arena`, which must have room for n_tensors(work), in order of the graph.
  // `groups` are those the work was built from; both are borrowed until the graph has been
  // computed for the last time. Errors: kResourceExhausted when the device has no memory left.
  virtual Result<std::span<const Insertion>> prepare(std::span<SiteWork> work,
                                                     std::span<const StepGroup> groups,
                                                     ggml_context* arena) = 0;

  // Frees what is kept for an adapter. Requires: what prepare() made is not computed again.
  virtual void forget(const ResidentAdapter* adapter) = 0;
};

}  // namespace graft
