#include "grafting/fused_step.h"

#include <ggml.h>

#include <algorithm>
#include <cstdint>

namespace graft {
namespace {

bool is_expert_site(const SiteWork& work) { return work.node->node->op == GGML_OP_MUL_MAT_ID; }

float* aligned(std::vector<float>& floats) {
  const auto address = reinterpret_cast<std::uintptr_t>(floats.data());
  return floats.data() + (64 - address % 64) % 64 / sizeof(float);
}

}  // namespace

LoraSite FusedStep::site_of(const SiteWork& work) {
  const ggml_tensor* node = work.node->node;
  const ggml_tensor* x = node->src[1];
  LoraSite site;
  site.y = static_cast<char*>(node->data);
  site.y_stride_bytes = node->nb[1];
  if (node->op != GGML_OP_GET_ROWS) {
    site.x = static_cast<const char*>(x->data);
    // Expert sites: rows are (token, slot) pairs; with one slot a row is a token.
    site.x_stride_bytes = is_expert_site(work) && x->ne[1] == 1 ? x->nb[2] : x->nb[1];
  }
  site.work = work.work;
  return site;
}

// The experts of a row are known only inside the step; make room for them now.
void FusedStep::reserve_experts(Call& call, SiteWork& work) {
  const auto n_slots = static_cast<std::size_t>(work.node->node->ne[1]);
  for (LoraWork& entry : work.work) {
    std::vector<LoraItem> items;
    items.reserve(entry.items.size() * n_slots);
    for (const LoraItem& item : entry.items) {
      for (std::size_t slot = 0; slot < n_slots; ++slot) {
        const auto row = static_cast<std::size_t>(item.y_row) * n_slots + slot;
        items.push_back({0, static_cast<std::int32_t>(row), 0});
      }
    }
    call.expert_items.push_back(std::move(items));
    entry.items = call.expert_items.back();
  }
}

bool FusedStep::reads_same_input(const SiteWork& first, const SiteWork& second) {
  return first.node->node->op == GGML_OP_MUL_MAT && second.node->node->op == GGML_OP_MUL_MAT &&
         first.node->position + 1 == second.node->position &&
         first.node->node->src[1] == second.node->node->src[1];
}

// Lists, for each work entry, the (token, slot) rows in order of their experts.
void FusedStep::list_experts(Call& call) {
  std::size_t next = 0;
  for (SiteWork* work : call.works) {
    if (!is_expert_site(*work)) continue;
    const ggml_tensor* node = work->node->node;
    const ggml_tensor* ids = node->src[2];
    const auto n_slots = static_cast<std::int32_t>(node->ne[1]);
    const bool one_slot = node->src[1]->ne[1] == 1;
    for (std::size_t entry = 0; entry < work->work.size(); ++entry) {
      std::vector<LoraItem>& items = call.expert_items[next++];
      // Slot s of token t is row t * n_slots + s of the result.
      for (LoraItem& item : items) {
        const std::int32_t token = item.y_row / n_slots;
        const std::int32_t slot = item.y_row % n_slots;
        item.x_row = one_slot ? token : item.y_row;
        item.expert = *reinterpret_cast<const std::int32_t*>(
            static_cast<const char*>(ids->data) + static_cast<std::size_t>(token) * ids->nb[1] +
            static_cast<std::size_t>(slot) * ids->nb[0]);
      }
      std::sort(items.begin(), items.end(), [](const LoraItem& a, const LoraItem& b) {
        return a.expert != b.expert ? a.expert < b.expert : a.y_row < b.y_row;
      });
    }
  }
}

namespace {

// Floats that keep the scratch of neighbouring threads on different cache lines.
constexpr std::size_t kScratchStep = 16;

std::size_t rounded_scratch(std::span<const LoraSite> sites) {
  return (lora_scratch_floats(sites) + kScratchStep - 1) / kScratchStep * kScratchStep;
}

}  // namespace

// The rows begin .. end - 1 of a call as sites of their own.
void FusedStep::cut_share(const Call& call, std::int32_t begin, std::int32_t end,
                          Share& share) const {
  share.sites.clear();
  share.work.clear();
  std::size_t n_work = 0;
  for (const LoraSite& site : call.sites) n_work += site.work.size();
  share.work.reserve(n_work);  // sites point into it
  const auto before = [](const LoraItem& item, std::int32_t row) { return item.y_row < row; };
  for (const LoraSite& site : call.sites) {
    const std::size_t first = share.work.size();
    for (const LoraWork& work : site.work) {
      const auto from = std::lower_bound(work.items.begin(), work.items.end(), begin, before);
      const auto to = std::lower_bound(from, work.items.end(), end, before);
      if (from == to) continue;
      share.work.push_back({work.term, work.scale, {from, to}});
    }
    LoraSite part = site;
    part.work = std::span<const LoraWork>(share.work).subspan(first);
    if (!part.work.empty()) share.sites.push_back(part);
  }
}

// Gives each thread rows of its own when they can be divided evenly: then nobody waits between
// shrink and expand. False when they cannot (fewer rows than threads, very unequal ranks).
bool FusedStep::share_rows(Call& call) {
  std::int32_t n_rows = 0;
  for (const LoraSite& site : call.sites) {
    for (const LoraWork& work : site.work) {
      if (!work.items.empty()) n_rows = std::max(n_rows, work.items.back().y_row + 1);
    }
  }
  if (n_rows < n_threads_) return false;
  row_costs_.assign(static_cast<std::size_t>(n_rows), 0);
  std::int64_t total = 0;
  for (const LoraSite& site : call.sites) {
    for (const LoraWork& work : site.work) {
      const std::int64_t cost = work.term->rank * (work.term->n_in + work.term->n_out);
      for (const LoraItem& item : work.items)
        row_costs_[static_cast<std::size_t>(item.y_row)] += cost;
      total += cost * static_cast<std::int64_t>(work.items.size());
    }
  }
  call.shares.resize(static_cast<std::size_t>(n_threads_));
  std::int64_t done = 0;
  std::int32_t row = 0;
  std::int64_t largest = 0;
  for (std::int32_t t = 0; t < n_threads_; ++t) {
    const std::int32_t begin = row;
    const std::int64_t before = done;
    const std::int64_t goal = total * (t + 1) / n_threads_;
    while (row < n_rows &&
           (t + 1 == n_threads_ || done + row_costs_[static_cast<std::size_t>(row)] / 2 < goal)) {
      done += row_costs_[static_cast<std::size_t>(row++)];
    }
    largest = std::max(largest, done - before);
    cut_share(call, begin, row, call.shares[static_cast<std::size_t>(t)]);
  }
  return largest * n_threads_ * 4 <= total * 5;
}

std::size_t FusedStep::scratch_floats(Call& call) const {
  if (!call.is_shared) return lora_scratch_floats(call.sites);
  std::size_t n = 0;
  for (Share& share : call.shares) {
    share.scratch_begin = n;
    n += rounded_scratch(share.sites);
  }
  return n;
}

void FusedStep::run(ggml_tensor* /*target*/, int ith, int nth, void* data) {
  Call& call = *static_cast<Call*>(data);
  if (call.is_shared && nth == call.owner->n_threads_) {
    const Share& share = call.shares[static_cast<std::size_t>(ith)];
    float* scratch = aligned(call.owner->scratch_) + share.scratch_begin;
    lora_shrink(share.sites, scratch, 0, 1);
    lora_expand(share.sites, scratch, 0, 1);
    return;
  }
  if (!call.expert_items.empty()) {
    if (ith == 0) list_experts(call);
    call.owner->barrier_.arrive_and_wait(nth);
  }
  lora_apply(call.sites, aligned(call.owner->scratch_), call.owner->barrier_, ith, nth);
}

Result<std::span<const Insertion>> FusedStep::prepare(std::span<SiteWork> work,
                                                      std::span<const StepGroup> /*groups*/,
                                                      ggml_context* arena) {
  n_calls_ = 0;
  insertions_.clear();
  std::size_t n_floats = 0;
  for (std::size_t i = 0; i < work.size();) {
    if (n_calls_ == calls_.size()) calls_.emplace_back();
    Call& call = calls_[n_calls_++];
    call.owner = this;
    call.sites.clear();
    call.works.clear();
    call.expert_items.clear();
    do {
      if (is_expert_site(work[i])) reserve_experts(call, work[i]);
      call.works.push_back(&work[i]);
      call.sites.push_back(site_of(work[i]));
      ++i;
    } while (i < work.size() && reads_same_input(work[i - 1], work[i]));
    call.is_shared = n_threads_ > 1 && call.expert_items.empty() && share_rows(call);
    n_floats = std::max({n_floats, scratch_floats(call), lora_scratch_floats(call.sites)});

    const SiteNode& last = *work[i - 1].node;
    ggml_tensor* arguments[] = {last.node->src[1]};
    ggml_tensor* op =
        ggml_custom_inplace(arena, last.node, arguments, 1, run, GGML_N_TASKS_MAX, &call);
    op->flags |= last.node->flags & GGML_TENSOR_FLAG_COMPUTE;
    insertions_.push_back({last.position, op});
  }
  if (scratch_.size() < n_floats + 16) scratch_.resize(n_floats + 16);
  return std::span<const Insertion>(insertions_);
}

}  // namespace graft
