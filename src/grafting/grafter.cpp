#include "grafting/grafter.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <vector>

#include "base/check.h"
#include "grafting/attention_step.h"
#include "grafting/backend.h"
#include "grafting/compute_pool.h"
#include "grafting/exact_matmul.h"
#include "grafting/fused_step.h"
#include "grafting/module_step.h"
#include "grafting/ops_step.h"
#include "grafting/state_tap.h"

namespace graft {
namespace {

// A device runs neither custom ops nor lets the CPU read its tensors.
GrafterOptions completed(GrafterOptions options) {
  if (options.device != nullptr) {
    options.emitter = EmitterKind::kOps;
    options.attention = false;
  }
  return options;
}

std::unique_ptr<Emitter> make_emitter(const GrafterOptions& options) {
  if (options.emitter == EmitterKind::kOps) {
    return std::make_unique<OpsStep>(options.device != nullptr
                                         ? ggml_backend_dev_buffer_type(options.device)
                                         : ggml_backend_cpu_buffer_type());
  }
  return std::make_unique<FusedStep>(options.n_threads);
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct FreeContext {
  void operator()(ggml_context* context) const { ggml_free(context); }
};

// Tensor structs for the inserted nodes of one graph; their data is the base graph's.
class NodeArena {
 public:
  void reset(std::size_t n_tensors) {
    const std::size_t needed = (n_tensors + 1) * ggml_tensor_overhead();
    context_.reset();
    if (memory_.size() < needed) memory_.resize(needed);
    context_.reset(ggml_init({memory_.size(), memory_.data(), /*no_alloc=*/true}));
    GRAFT_CHECK(context_ != nullptr);
  }
  ggml_context* get() const { return context_.get(); }

 private:
  std::vector<char> memory_;
  std::unique_ptr<ggml_context, FreeContext> context_;
};

// Whether the graph has as many rows as the plan; empty when it has.
std::string count_mismatch(const StepPlan& plan, const GraphIndex& index) {
  if (static_cast<std::size_t>(index.n_tokens()) != plan.rows.size()) {
    return "the graph has " + std::to_string(index.n_tokens()) + " rows, the plan " +
           std::to_string(plan.rows.size());
  }
  const auto n_outputs = std::count_if(plan.rows.begin(), plan.rows.end(),
                                       [](const PlannedRow& row) { return row.is_output; });
  if (index.out_ids != nullptr && n_outputs != index.n_outputs()) {
    return "the graph has " + std::to_string(index.n_outputs()) + " output rows, the plan " +
           std::to_string(n_outputs);
  }
  return "";
}

// Compares the graph's own inputs with the plan: a row that is not what the plan says it is makes
// the step fail instead of giving a request another one's module. Requires: the counts agree.
std::string content_mismatch(const StepPlan& plan, const GraphIndex& index) {
  const auto* tokens = static_cast<const std::int32_t*>(index.tokens->data);
  const auto* positions = index.positions == nullptr
                              ? nullptr
                              : static_cast<const std::int32_t*>(index.positions->data);
  const auto* outputs =
      index.out_ids == nullptr ? nullptr : static_cast<const std::int32_t*>(index.out_ids->data);
  std::int64_t n_outputs = 0;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const PlannedRow& row = plan.rows[i];
    const bool same =
        tokens[i] == row.token && (positions == nullptr || positions[i] == row.position);
    bool same_output = true;
    if (row.is_output && outputs != nullptr) {
      same_output =
          n_outputs < index.n_outputs() && outputs[n_outputs] == static_cast<std::int32_t>(i);
    }
    n_outputs += row.is_output ? 1 : 0;
    if (!same || !same_output) {
      return "row " + std::to_string(i) + " of the graph is not the plan's";
    }
  }
  return "";
}

}  // namespace

struct Grafter::Impl : GraphRewriter {
  explicit Impl(const GrafterOptions& chosen)
      : options(completed(chosen)),
        compute_pool(chosen.n_threads, chosen.poll),
        attention(chosen.n_threads),
        modules(indexer.sites()),
        emitter(make_emitter(options)) {}

  const ggml_backend_device* device() const override { return options.device; }

  void graph_built(std::span<ggml_tensor* const> nodes) override {
    indexer.build(nodes, index);
    n_matmuls = 0;
    if (options.deterministic) {
      n_matmuls = static_cast<std::size_t>(
          std::count_if(nodes.begin(), nodes.end(), ExactMatmul::is_matmul));
      if (uncovered_matmul.empty()) uncovered_matmul = ExactMatmul::first_uncovered(nodes);
    }
    if (index.final_state.node != nullptr && options.device == nullptr) {
      n_state_values = index.final_state.node->ne[0];
    }
    built = nodes;
    is_emitted = false;
    stats.n_graph_builds += 1;
  }

  std::string begin_compute();
  Rewrite rewrite(std::span<ggml_tensor* const> nodes,
                  std::vector<ggml_tensor*>& rewritten) override;

  ggml_threadpool* pool() override { return compute_pool.get(); }
  int n_threads() const override { return options.n_threads; }

  bool is_built_graph(std::span<ggml_tensor* const> nodes) const {
    return nodes.size() == built.size() && nodes.data() == built.data();
  }
  // The graph of a step, as opposed to one of maintenance. On a device it may begin behind the
  // lookup of the tokens.
  bool is_step_graph() const {
    return index.tokens != nullptr || (options.device != nullptr && index.positions != nullptr);
  }
  std::string mismatch() const {
    std::string reason = count_mismatch(*plan, index);
    if (reason.empty() && options.device == nullptr) reason = content_mismatch(*plan, index);
    return reason;
  }
  // Empty when the graph is, or need not be.
  std::string why_not_deterministic() const {
    if (!options.deterministic) return "";
    if (options.device != nullptr) return "not deterministic: computed on a GPU";
    if (!uncovered_matmul.empty()) return "not deterministic: " + uncovered_matmul;
    if (index.n_foreign_attention == 0) return "";
    return "not deterministic: attention, " + index.foreign_reason;
  }
  Rewrite refuse(std::string reason) {
    last_error = std::move(reason);
    return Rewrite::kRefused;
  }
  // Maintenance graphs and pieces of graphs have no rows of ours.
  Rewrite leave(bool known) {
    const bool needs_rows = plan != nullptr && (!plan->sets.empty() || StateTap::is_in(*plan));
    if (needs_rows && !known) return refuse("the step's graph was computed in pieces");
    if (needs_rows && options.device != nullptr) {
      return refuse("the device's graph has no input that tells its rows");
    }
    return Rewrite::kPassThrough;
  }
  Status emit(std::span<ggml_tensor* const> nodes, std::vector<ggml_tensor*>& rewritten);
  void merge_nodes(std::span<ggml_tensor* const> nodes, std::vector<ggml_tensor*>& rewritten);
  ggml_tensor* attention_op(std::size_t i);
  static void run_attention(ggml_tensor* target, int ith, int nth, void* call);

  // Which attention node an op computes.
  struct AttentionCall {
    Impl* impl = nullptr;
    std::size_t node = 0;
  };

  GrafterOptions options;
  ComputePool compute_pool;
  GraphIndexer indexer;
  GraphIndex index;
  std::span<ggml_tensor* const> built;  // identity of the indexed graph; never read through
  AttentionStep attention;
  ModuleStep modules;
  std::unique_ptr<Emitter> emitter;
  ExactMatmul matmuls;
  StateTap tap;
  std::int64_t n_state_values = 0;
  std::size_t n_matmuls = 0;  // of the built graph; counted only when they are replaced
  std::string uncovered_matmul;
  NodeArena arena;
  std::deque<AttentionCall> attention_calls;
  std::span<const Insertion> insertions;
  bool is_emitted = false;  // the rewritten list belongs to this graph and these groups
  const StepPlan* plan = nullptr;
  std::string last_error;
  GrafterStats stats;
};

void Grafter::Impl::run_attention(ggml_tensor* /*target*/, int ith, int nth, void* data) {
  const auto* call = static_cast<const AttentionCall*>(data);
  call->impl->attention.compute(call->node, ith, nth);
}

ggml_tensor* Grafter::Impl::attention_op(std::size_t i) {
  while (attention_calls.size() <= i) attention_calls.push_back({this, attention_calls.size()});
  ggml_tensor* node = index.attention[i].node;
  ggml_tensor* arguments[] = {node->src[0], node->src[1], node->src[2], node->src[3]};
  ggml_tensor* op = ggml_custom_inplace(arena.get(), node, arguments, 4, run_attention,
                                        GGML_N_TASKS_MAX, &attention_calls[i]);
  op->flags |= node->flags & GGML_TENSOR_FLAG_COMPUTE;
  return op;
}

// The base's nodes in their order, ours in between. Nothing of the base is ever moved.
void Grafter::Impl::merge_nodes(std::span<ggml_tensor* const> nodes,
                                std::vector<ggml_tensor*>& rewritten) {
  rewritten.clear();
  matmuls.clear();
  std::size_t next_attention = options.attention ? 0 : index.attention.size();
  std::size_t next_insertion = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    ggml_tensor* node = nodes[i];
    if (next_attention < index.attention.size() && node == index.attention[next_attention].node) {
      rewritten.push_back(attention_op(next_attention++));
    } else if (options.deterministic && ExactMatmul::is_matmul(node) && ExactMatmul::covers(node)) {
      rewritten.push_back(matmuls.op_for(node, arena.get()));
    } else if (!options.attention || index.casts.empty() || index.casts.count(node) == 0) {
      rewritten.push_back(node);
    }
    if (tap.is_active() && node == index.final_state.node) {
      rewritten.push_back(tap.op_for(index.final_state, arena.get()));
    }
    while (next_insertion < insertions.size() &&
           insertions[next_insertion].position == static_cast<std::int32_t>(i)) {
      rewritten.push_back(insertions[next_insertion++].op);
    }
  }
  stats.n_module_nodes = static_cast<std::int64_t>(insertions.size());
  stats.n_attention_nodes =
      options.attention ? static_cast<std::int64_t>(index.attention.size()) : 0;
  stats.n_foreign_attention_nodes = index.n_foreign_attention;
  stats.n_exact_matmuls = static_cast<std::int64_t>(n_matmuls);
}

// Where the graph contradicts the plan; empty if nowhere, and then the positions of its cells are
// learnt.
std::string Grafter::Impl::begin_compute() {
  if (plan != nullptr) {
    std::string reason = mismatch();
    if (reason.empty()) reason = why_not_deterministic();
    if (!reason.empty()) return reason;
    stats.n_computes += 1;
  }
  if (options.device == nullptr) attention.learn_positions(index);
  if (plan == nullptr || !attention.awaits_restored()) return "";
  return attention.learn_restored(index, *plan);
}

Rewrite Grafter::Impl::rewrite(std::span<ggml_tensor* const> nodes,
                               std::vector<ggml_tensor*>& rewritten) {
  const std::int64_t start = now_ns();
  const bool known = is_built_graph(nodes);
  if (!known || !is_step_graph()) return leave(known);
  if (std::string reason = begin_compute(); !reason.empty()) return refuse(std::move(reason));
  static const StepPlan base_only;
  const StepPlan& current = plan != nullptr ? *plan : base_only;
  if (!modules.update_groups(current)) is_emitted = false;
  if (tap.select(current)) is_emitted = false;
  if (tap.is_active() && index.final_state.node == nullptr) {
    return refuse("the graph has no final states that are known to be its rows'");
  }
  const bool was_emitted = is_emitted;
  if (!is_emitted) {
    if (const Status emitted = emit(nodes, rewritten); !emitted) {
      return refuse(emitted.error().message);
    }
  }
  if (options.attention) attention.prepare(index);
  stats.prepare_ns = now_ns() - start;
  const bool changes = stats.n_module_nodes > 0 || stats.n_attention_nodes > 0 ||
                       stats.n_exact_matmuls > 0 || tap.is_active();
  if (!changes) return Rewrite::kPassThrough;
  return was_emitted ? Rewrite::kUnchanged : Rewrite::kRewritten;
}

// Makes the node list of this graph with the current groups. It stays right as long as the graph is
// reused and the same modules act on the same rows: in steady decoding, for many steps.
Status Grafter::Impl::emit(std::span<ggml_tensor* const> nodes,
                           std::vector<ggml_tensor*>& rewritten) {
  insertions = {};
  std::size_t n_tensors = index.attention.size() + n_matmuls + (tap.is_active() ? 1U : 0U);
  if (modules.has_groups()) {
    if (options.deterministic && options.emitter == EmitterKind::kOps) {
      return not_supported("not deterministic: modules as standard operations");
    }
    GRAFT_RETURN_IF_ERROR(modules.build_site_work(index));
    n_tensors += emitter->n_tensors(modules.site_work());
  }
  arena.reset(n_tensors);
  if (modules.has_groups()) {
    GRAFT_ASSIGN_OR_RETURN(insertions,
                           emitter->prepare(modules.site_work(), modules.groups(), arena.get()));
  }
  merge_nodes(nodes, rewritten);
  is_emitted = true;
  return {};
}

void register_grafting_device() { register_backend(); }

Result<ggml_backend_device*> grafting_gpu_device() {
  ggml_backend_dev_t gpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
  if (gpu == nullptr) {
    return not_supported("there is no GPU that this build of Graft can use (option GRAFT_CUDA)");
  }
  // With it ggml moves nodes to streams of their own, which knows nothing of ours between them.
  const char* reorders = std::getenv("GGML_CUDA_GRAPH_OPT");
  if (reorders != nullptr && std::atoi(reorders) != 0) {
    return not_supported("GGML_CUDA_GRAPH_OPT is set; modules cannot run with it");
  }
  return grafting_device_around(gpu);
}

ggml_backend_device* grafting_device_around(ggml_backend_device* inner) {
  return wrap_device(inner);
}

Grafter::Grafter(const GrafterOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Grafter::~Grafter() = default;

Grafter::Binding::Binding(Grafter& grafter) { exchange_current_rewriter(grafter.impl_.get()); }
Grafter::Binding::~Binding() { exchange_current_rewriter(nullptr); }

const SiteTable& Grafter::sites() const { return impl_->indexer.sites(); }

Status Grafter::check_attachable(const ResidentAdapter& adapter) const {
  return ModuleStep::check_attachable(impl_->indexer.sites(), adapter);
}

void Grafter::begin_step(const StepPlan& plan) {
  impl_->indexer.freeze();
  impl_->plan = &plan;
  impl_->last_error.clear();
}

void Grafter::end_step() { impl_->plan = nullptr; }

std::span<const float> Grafter::state(std::size_t row) const { return impl_->tap.state(row); }

std::int64_t Grafter::n_state_values() const { return impl_->n_state_values; }

const std::string& Grafter::last_error() const { return impl_->last_error; }

void Grafter::forget(const ResidentAdapter* adapter) {
  impl_->modules.forget(adapter);
  impl_->emitter->forget(adapter);
  impl_->is_emitted = false;
}

void Grafter::supply_positions(std::int32_t sequence, std::vector<std::int32_t> positions) {
  impl_->attention.supply_positions(sequence, std::move(positions));
}

std::string Grafter::attention_notes() const { return impl_->index.foreign_reason; }

std::string Grafter::uncovered_matmul() const { return impl_->uncovered_matmul; }

void Grafter::set_attention(bool enabled) {
  impl_->options.attention = enabled && impl_->options.device == nullptr;
  impl_->is_emitted = false;
}

void Grafter::run_parallel(const std::function<void(int ith, int nth)>& work) {
  impl_->compute_pool.run(work);
}

const GrafterStats& Grafter::stats() const { return impl_->stats; }

}  // namespace graft
