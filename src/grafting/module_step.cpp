#include "grafting/module_step.h"

#include <algorithm>

namespace graft {
namespace {

std::string shape_text(std::int64_t n_in, std::int64_t n_out, std::int64_t n_experts) {
  std::string text = std::to_string(n_in) + " -> " + std::to_string(n_out);
  if (n_experts > 1) text += " x " + std::to_string(n_experts) + " experts";
  return text;
}

Status check_term(const SiteTable& sites, const ResidentTerm& term) {
  const std::string name = "'" + term.site.tensor + "' (" + to_string(term.site.op) + ")";
  const std::int32_t index = sites.find(term.site);
  if (index < 0) return not_supported("the model's graph has no site " + name + " for a module");
  const Site& site = sites.at(index);
  if (!site.refusal.empty()) {
    return not_supported("modules cannot act on " + name + ": " + site.refusal);
  }
  if (term.n_in != site.n_in || term.out_offset < 0 || term.n_out <= 0 ||
      term.out_offset + term.n_out > site.n_out || term.n_experts != site.n_experts) {
    return invalid_argument("the adapter's shape at " + name + " is " +
                            shape_text(term.n_in, term.n_out, term.n_experts) + "; the model has " +
                            shape_text(site.n_in, site.n_out, site.n_experts));
  }
  return {};
}

bool content_order(const StepGroup& a, const StepGroup& b) {
  if (a.adapter->digest() != b.adapter->digest()) {
    return a.adapter->digest() < b.adapter->digest();
  }
  return a.scale < b.scale;
}

}  // namespace

Status ModuleStep::check_attachable(const SiteTable& sites, const ResidentAdapter& adapter) {
  for (const ResidentTerm& term : adapter.terms()) {
    GRAFT_RETURN_IF_ERROR(check_term(sites, term));
  }
  return {};
}

const AdapterSites& ModuleStep::sites_of(const ResidentAdapter& adapter) {
  const auto found = adapter_sites_.find(&adapter);
  if (found != adapter_sites_.end()) return found->second;
  AdapterSites& made = adapter_sites_[&adapter];
  made.by_site.resize(static_cast<std::size_t>(sites_.size()), nullptr);
  for (std::int32_t i = 0; i < sites_.size(); ++i) {
    made.by_site[static_cast<std::size_t>(i)] = adapter.terms_at(sites_.at(i).key);
  }
  return made;
}

StepGroup& ModuleStep::group_without(std::int32_t row, const PlannedAttachment& attachment) {
  for (StepGroup& group : next_.used()) {
    if (group.adapter != attachment.adapter || group.scale != attachment.scale) continue;
    if (group.token_items.empty() || group.token_items.back().y_row != row) return group;
  }
  if (next_.n == next_.storage.size()) next_.storage.emplace_back();
  StepGroup& group = next_.storage[next_.n++];
  group.adapter = attachment.adapter;
  group.scale = attachment.scale;
  group.sites = &sites_of(*attachment.adapter);
  group.token_items.clear();
  group.output_items.clear();
  group.lookup_items.clear();
  return group;
}

void ModuleStep::add_rows(const StepPlan& plan) {
  std::int32_t n_outputs = 0;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const PlannedRow& row = plan.rows[i];
    const auto at = static_cast<std::int32_t>(i);
    const std::int32_t output = row.is_output ? n_outputs++ : -1;
    if (row.set < 0) continue;
    for (const PlannedAttachment& attachment : plan.sets[static_cast<std::size_t>(row.set)]) {
      if (row.position < attachment.start_position || attachment.scale == 0.0F) continue;
      StepGroup& group = group_without(at, attachment);
      group.token_items.push_back({at, at, 0});
      group.lookup_items.push_back({row.token, at, 0});
      if (output >= 0) group.output_items.push_back({output, output, 0});
    }
  }
}

bool ModuleStep::update_groups(const StepPlan& plan) {
  next_.n = 0;
  add_rows(plan);
  std::sort(next_.used().begin(), next_.used().end(), content_order);
  const bool same = std::equal(next_.used().begin(), next_.used().end(), groups_.used().begin(),
                               groups_.used().end(), [](const StepGroup& a, const StepGroup& b) {
                                 return a.adapter == b.adapter && a.scale == b.scale &&
                                        a.token_items == b.token_items &&
                                        a.output_items == b.output_items;
                               });
  if (!same) {
    std::swap(groups_, next_);
    return false;
  }
  for (std::size_t i = 0; i < groups_.n; ++i) {
    std::copy(next_.storage[i].lookup_items.begin(), next_.storage[i].lookup_items.end(),
              groups_.storage[i].lookup_items.begin());
  }
  return true;
}

namespace {

const std::vector<LoraItem>& items_of(const StepGroup& group, SiteOp op, RowSpace rows) {
  if (op == SiteOp::kGetRows) return group.lookup_items;
  return rows == RowSpace::kOutputs ? group.output_items : group.token_items;
}

bool rows_fit(const GraphIndex& index, const SiteNode& node, const std::vector<LoraItem>& items) {
  const bool of_outputs = node.rows == RowSpace::kOutputs;
  const std::int64_t n_rows = of_outputs ? index.n_outputs() : index.n_tokens();
  return node.rows_proven && (items.empty() || items.back().y_row < n_rows);
}

}  // namespace

Status ModuleStep::build_site_work(const GraphIndex& index) {
  n_site_work_ = 0;
  for (const SiteNode& node : index.sites) {
    const SiteKey& key = sites_.at(node.site).key;
    SiteWork* target = nullptr;
    for (const StepGroup& group : groups_.used()) {
      const auto* terms = group.sites->by_site[static_cast<std::size_t>(node.site)];
      if (terms == nullptr) continue;
      const std::vector<LoraItem>& items = items_of(group, key.op, node.rows);
      if (!rows_fit(index, node, items)) {
        return internal_error("the rows of '" + key.tensor +
                              "' do not match the batch; the step is refused");
      }
      if (items.empty()) continue;
      if (target == nullptr) target = &next_site_work(node);
      for (const ResidentTerm* term : *terms) target->work.push_back({term, group.scale, items});
    }
  }
  return {};
}

SiteWork& ModuleStep::next_site_work(const SiteNode& node) {
  if (n_site_work_ == site_work_.size()) site_work_.emplace_back();
  SiteWork& work = site_work_[n_site_work_++];
  work.node = &node;
  work.work.clear();
  return work;
}

}  // namespace graft
