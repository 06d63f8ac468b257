// The grafting backend: a ggml device of type ACCEL that delegates everything to the CPU device and
// lets a GraphRewriter change the node list of each computation. Internal to grafting/; the only
// implementation file is also the only one that includes ggml's private headers.
//
// Registration is process-wide and permanent. A backend instance belongs to one context; it takes
// the rewriter that is current on the thread that creates the context, or none (pass-through).
#pragma once

#include <functional>
#include <span>
#include <vector>

struct ggml_tensor;
struct ggml_threadpool;

namespace graft {

enum class Rewrite { kPassThrough, kRewritten, kRefused };

class GraphRewriter {
 public:
  virtual ~GraphRewriter() = default;

  // A graph was (re)built; its tensors have no memory yet. Called once per build.
  virtual void graph_built(std::span<ggml_tensor* const> nodes) = 0;

  // A graph is about to be computed; its inputs are written. kRewritten: `rewritten` holds the
  // nodes to compute instead. kRefused: the computation fails and llama_decode returns an error.
  virtual Rewrite rewrite(std::span<ggml_tensor* const> nodes,
                          std::vector<ggml_tensor*>& rewritten) = 0;

  // The pool that computes; never null.
  virtual ggml_threadpool* pool() = 0;
  virtual int n_threads() const = 0;
};

void register_backend();

// The rewriter for contexts that this thread creates from now on; null = pass-through.
GraphRewriter* exchange_current_rewriter(GraphRewriter* rewriter);

}  // namespace graft
