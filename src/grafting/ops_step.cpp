#include "grafting/ops_step.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <string>

namespace graft {
namespace {

// The longest chain, an expert site with a bias, and two lists of rows.
constexpr std::size_t kTensorsPerTerm = 16;

bool is_expert_node(const ggml_tensor* node) { return node->op == GGML_OP_MUL_MAT_ID; }

// Rows of the result per row of the batch.
std::int64_t n_slots_of(const ggml_tensor* node) { return is_expert_node(node) ? node->ne[1] : 1; }

}  // namespace

std::size_t OpsStep::n_tensors(std::span<const SiteWork> work) const {
  std::size_t n_terms = 0;
  for (const SiteWork& site : work) n_terms += site.work.size();
  return n_terms * kTensorsPerTerm;
}

ggml_tensor* OpsStep::node(ggml_tensor* made) {
  made->flags |= site_->node->flags & GGML_TENSOR_FLAG_COMPUTE;
  insertions_.push_back({site_->position, made});
  temporaries_.add(made);
  return made;
}

// A view computes nothing, so it needs no place in the list of nodes.
ggml_tensor* OpsStep::view(ggml_tensor* made) {
  temporaries_.add(made);
  return made;
}

// A GPU adds up products of F16 values in F16 unless it is told otherwise.
ggml_tensor* OpsStep::product(ggml_tensor* factor, ggml_tensor* rows) {
  ggml_tensor* made = ggml_mul_mat(arena_, factor, rows);
  ggml_prec_set_acc(made, GGML_PREC_F32);
  return node(made);
}

// ggml aborts at an operation that the device does not have.
Status OpsStep::check_supported() const {
  ggml_backend_dev_t device = ggml_backend_buft_get_device(type_);
  if (device == nullptr) return {};
  for (const Insertion& insertion : insertions_) {
    if (ggml_backend_dev_supports_op(device, insertion.op)) continue;
    return not_supported(std::string("the device cannot compute ") + ggml_op_desc(insertion.op) +
                         " for a module");
  }
  return {};
}

ggml_tensor* OpsStep::rows_of(std::span<const LoraItem> items, std::int64_t n_slots) {
  for (const RowList& list : row_lists_) {
    if (list.items.data() == items.data() && list.n_slots == n_slots) return list.rows;
  }
  const auto n = static_cast<std::int64_t>(items.size()) * n_slots;
  ggml_tensor* rows = ggml_new_tensor_1d(arena_, GGML_TYPE_I32, n);
  indexes_.add(rows);
  row_lists_.push_back({items, n_slots, rows});
  return rows;
}

void OpsStep::write_indexes() {
  for (const RowList& list : row_lists_) {
    values_.clear();
    for (const LoraItem& item : list.items) {
      for (std::int64_t slot = 0; slot < list.n_slots; ++slot) {
        values_.push_back(static_cast<std::int32_t>(item.y_row * list.n_slots + slot));
      }
    }
    ggml_backend_tensor_set(list.rows, values_.data(), 0, values_.size() * sizeof(std::int32_t));
  }
}

// Reads the graph's own tokens: they change from step to step while the nodes stay.
ggml_tensor* OpsStep::look_up(const LoraWork& entry) {
  ggml_tensor* tokens = site_->node->src[1];
  ggml_tensor* column =
      view(ggml_view_2d(arena_, tokens, 1, tokens->ne[0], tokens->nb[0], /*offset=*/0));
  ggml_tensor* picked = node(ggml_get_rows(arena_, column, rows_of(entry.items, 1)));
  ggml_tensor* ids = view(ggml_reshape_1d(arena_, picked, ggml_nelements(picked)));
  return node(ggml_get_rows(arena_, factors_.of(*entry.term).a, ids));
}

// A x of the module's rows: F32 [rank, rows], or [rank, slots, rows] at an expert site.
ggml_tensor* OpsStep::shrink(const LoraWork& entry, ggml_tensor* experts) {
  if (site_->node->op == GGML_OP_GET_ROWS) return look_up(entry);
  ggml_tensor* a = factors_.of(*entry.term).a;
  ggml_tensor* x = site_->node->src[1];
  if (experts == nullptr) {
    ggml_tensor* picked = node(ggml_get_rows(arena_, x, rows_of(entry.items, 1)));
    return product(a, picked);
  }
  // Either all experts of a token share one row of x, or each slot has its own.
  const std::int64_t n_slots = x->ne[1];
  const std::size_t stride = n_slots == 1 ? x->nb[2] : x->nb[1];
  ggml_tensor* flat =
      view(ggml_view_2d(arena_, x, x->ne[0], n_slots * x->ne[2], stride, /*offset=*/0));
  ggml_tensor* picked = node(ggml_get_rows(arena_, flat, rows_of(entry.items, n_slots)));
  const auto n_rows = static_cast<std::int64_t>(entry.items.size());
  ggml_tensor* by_token = view(ggml_reshape_3d(arena_, picked, x->ne[0], n_slots, n_rows));
  return node(ggml_mul_mat_id(arena_, a, by_token, experts));
}

// scale * (B t + bias): F32 [n_out, rows * slots].
ggml_tensor* OpsStep::expand(const LoraWork& entry, ggml_tensor* t, ggml_tensor* experts) {
  const TermFactors& factors = factors_.of(*entry.term);
  const float scale = entry.scale * entry.term->scale;
  ggml_tensor* scaled = node(ggml_scale(arena_, t, scale));
  ggml_tensor* delta = nullptr;
  if (experts == nullptr) {
    delta = product(factors.b, scaled);
  } else {
    delta = node(ggml_mul_mat_id(arena_, factors.b, scaled, experts));
    delta = view(ggml_reshape_2d(arena_, delta, delta->ne[0], delta->ne[1] * delta->ne[2]));
  }
  if (factors.bias == nullptr) return delta;
  ggml_tensor* bias = node(ggml_scale(arena_, factors.bias, scale));
  return node(ggml_add(arena_, delta, bias));
}

void OpsStep::add_to_rows(const LoraWork& entry, ggml_tensor* delta) {
  ggml_tensor* y = site_->node;
  const std::size_t offset = static_cast<std::size_t>(entry.term->out_offset) * sizeof(float);
  ggml_tensor* columns =
      view(ggml_view_2d(arena_, y, entry.term->n_out, y->ne[1] * y->ne[2], y->nb[1], offset));
  ggml_tensor* rows = rows_of(entry.items, n_slots_of(y));
  ggml_tensor* old = node(ggml_get_rows(arena_, columns, rows));
  ggml_tensor* sum = node(ggml_add(arena_, old, delta));
  node(ggml_set_rows(arena_, columns, sum, rows));
}

void OpsStep::emit(const SiteNode& site, const LoraWork& entry) {
  site_ = &site;
  temporaries_.reuse();
  ggml_tensor* experts = nullptr;
  if (is_expert_node(site.node)) {
    experts = node(ggml_get_rows(arena_, site.node->src[2], rows_of(entry.items, 1)));
  }
  add_to_rows(entry, expand(entry, shrink(entry, experts), experts));
}

Result<std::span<const Insertion>> OpsStep::prepare(std::span<SiteWork> work,
                                                    std::span<const StepGroup> groups,
                                                    ggml_context* arena) {
  indexes_.clear();
  temporaries_.clear();
  row_lists_.clear();
  insertions_.clear();
  arena_ = arena;
  for (const StepGroup& group : groups) GRAFT_RETURN_IF_ERROR(factors_.add(*group.adapter));
  for (const SiteWork& site : work) {
    for (const LoraWork& entry : site.work) emit(*site.node, entry);
  }
  GRAFT_RETURN_IF_ERROR(indexes_.place());
  GRAFT_RETURN_IF_ERROR(temporaries_.place());
  GRAFT_RETURN_IF_ERROR(check_supported());
  write_indexes();
  return std::span<const Insertion>(insertions_);
}

}  // namespace graft
