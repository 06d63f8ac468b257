// The grafting backend: a ggml device that delegates everything to another one and lets a
// GraphRewriter change the node list of each computation. Around the CPU device it is of type
// ACCEL and registered, so that libllama uses it by itself; around any other device it is of type
// GPU and used by the models that name it. Internal to grafting/; the only implementation file is
// also the only one that includes ggml's private headers.
//
// Devices live as long as the process. A backend instance belongs to one context; it takes the
// rewriter that is current on the thread that creates the context, if that is meant for its
// device, or none (pass-through).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

struct ggml_backend_device;
struct ggml_tensor;
struct ggml_threadpool;

namespace graft {

enum class Rewrite : std::uint8_t {
  kPassThrough,
  kRewritten,
  kUnchanged,  // the list of the last kRewritten is right for this computation too
  kRefused,
};

class GraphRewriter {
 public:
  virtual ~GraphRewriter() = default;

  // The wrapping device whose graphs it rewrites; null = the one around the CPU device.
  virtual const ggml_backend_device* device() const = 0;

  // A graph was (re)built; its tensors have no memory yet. Called once per build.
  virtual void graph_built(std::span<ggml_tensor* const> nodes) = 0;

  // A graph is about to be computed; its inputs are written and no earlier computation of the
  // device is still running. kRewritten: `rewritten` holds the nodes to compute instead. kRefused:
  // the computation fails and llama_decode returns an error.
  virtual Rewrite rewrite(std::span<ggml_tensor* const> nodes,
                          std::vector<ggml_tensor*>& rewritten) = 0;

  // The pool that computes on the CPU; never null.
  virtual ggml_threadpool* pool() = 0;
  virtual int n_threads() const = 0;
};

// Registers the device around the CPU device with ggml; idempotent.
void register_backend();

// The wrapping device of type GPU around `inner`, made at the first call. By one thread at a time.
ggml_backend_device* wrap_device(ggml_backend_device* inner);

// The rewriter for contexts that this thread creates from now on; null = pass-through.
GraphRewriter* exchange_current_rewriter(GraphRewriter* rewriter);

}  // namespace graft
