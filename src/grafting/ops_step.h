// OpsStep: emits the work of a step as standard ggml operations, for devices that do not run custom
// ops. For each (term, scale) of a site: gather the module's rows of x, A, scale, B, gather the
// same rows of y, add, and scatter the sums to y. Rows without a module are never written.
//
// Cost: 7 nodes for a term (8 at an expert site, 2 more with a bias), against one node for a whole
// site in FusedStep; every node is a barrier on a CPU and a launch on a GPU. Each term gathers x
// anew. F16, BF16 and Q8_0 factors follow ggml's matmul, which converts x to the type its kernel
// takes. That kernel may depend on the number of rows, so a row with a module agrees with FusedStep
// within rounding and is not batch-invariant to the bit.
//
// The nodes read tensors of their own: row numbers, written by prepare(), and temporaries, which
// all terms share one after the other. Threads: as Emitter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grafting/emitter.h"
#include "grafting/ops_factors.h"
#include "grafting/step_tensors.h"

namespace graft {

class OpsStep final : public Emitter {
 public:
  // `type` allocates on the device that computes the graphs.
  explicit OpsStep(ggml_backend_buffer_type* type)
      : type_(type), factors_(type), indexes_(type), temporaries_(type) {}

  std::size_t n_tensors(std::span<const SiteWork> work) const override;
  Result<std::span<const Insertion>> prepare(std::span<SiteWork> work,
                                             std::span<const StepGroup> groups,
                                             ggml_context* arena) override;
  void forget(const ResidentAdapter* adapter) override { factors_.forget(adapter); }

 private:
  // The rows of a group in a matrix that has n_slots rows per batch row.
  struct RowList {
    std::span<const LoraItem> items;
    std::int64_t n_slots = 1;
    ggml_tensor* rows = nullptr;  // I32 [items * n_slots]
  };

  void emit(const SiteNode& site, const LoraWork& entry);
  ggml_tensor* shrink(const LoraWork& entry, ggml_tensor* experts);
  ggml_tensor* look_up(const LoraWork& entry);
  ggml_tensor* expand(const LoraWork& entry, ggml_tensor* t, ggml_tensor* experts);
  void add_to_rows(const LoraWork& entry, ggml_tensor* delta);

  ggml_tensor* rows_of(std::span<const LoraItem> items, std::int64_t n_slots);
  ggml_tensor* node(ggml_tensor* made);
  ggml_tensor* view(ggml_tensor* made);
  ggml_tensor* product(ggml_tensor* factor, ggml_tensor* rows);
  Status check_supported() const;
  void write_indexes();

  ggml_backend_buffer_type* type_;
  OpsFactors factors_;
  StepTensors indexes_;
  StepTensors temporaries_;
  std::vector<RowList> row_lists_;
  std::vector<Insertion> insertions_;
  std::vector<std::int32_t> values_;
  ggml_context* arena_ = nullptr;   // during prepare()
  const SiteNode* site_ = nullptr;  // whose nodes are emitted now
};

}  // namespace graft
