// FusedStep: emits the work of a step as one custom op per site, or one for two adjacent sites that
// read the same activation (gate and up projections). For devices that run custom ops: the CPU.
//
// prepare() runs before the graph is computed and decides behind which node each op stands; the ops
// run inside the computation on all threads of the pool.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "grafting/emitter.h"
#include "grafting/kernels/lora_kernel.h"

namespace graft {

class FusedStep final : public Emitter {
 public:
  explicit FusedStep(std::int32_t n_threads) : n_threads_(n_threads) {}

  std::size_t n_tensors(std::span<const SiteWork> work) const override { return work.size(); }
  Result<std::span<const Insertion>> prepare(std::span<SiteWork> work,
                                             std::span<const StepGroup> groups,
                                             ggml_context* arena) override;
  void forget(const ResidentAdapter* /*adapter*/) override {}

 private:
  // The rows that one thread computes alone, with no barrier inside the op.
  struct Share {
    std::vector<LoraSite> sites;
    std::vector<LoraWork> work;
    std::size_t scratch_begin = 0;
  };
  // One op: the sites it serves and, for expert weights, where their rows are listed.
  struct Call {
    FusedStep* owner = nullptr;
    std::vector<LoraSite> sites;
    std::vector<SiteWork*> works;
    std::vector<std::vector<LoraItem>> expert_items;  // per work entry of an expert site
    std::vector<Share> shares;                        // per thread; used when is_shared
    bool is_shared = false;
  };

  static void run(ggml_tensor* target, int ith, int nth, void* call);
  static LoraSite site_of(const SiteWork& work);
  static void reserve_experts(Call& call, SiteWork& work);
  static void list_experts(Call& call);
  bool share_rows(Call& call);
  void cut_share(const Call& call, std::int32_t begin, std::int32_t end, Share& share) const;
  std::size_t scratch_floats(Call& call) const;
  static bool reads_same_input(const SiteWork& first, const SiteWork& second);

  std::int32_t n_threads_;
  std::vector<std::int64_t> row_costs_;
  std::deque<Call> calls_;  // the first n_calls_ are in use
  std::size_t n_calls_ = 0;
  std::vector<Insertion> insertions_;
  std::vector<float> scratch_;
  SpinBarrier barrier_;
};

}  // namespace graft
