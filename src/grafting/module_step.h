// ModuleStep: turns the plan of one step into the work of each site: which term of which adapter
// acts on which rows. Independent of how the work is emitted (emitter.h).
//
// Rows are grouped by (adapter, scale). Groups stand in an order that depends on their content
// alone (digest, then scale), so that the terms of a row are added in the same order in any
// company. A group has a row once: where one content acts twice at one scale on a row (two names
// may share it), the row is in two groups.
//
// prepare() runs before the graph is computed; the rest is read-only during the step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grafting/graph_index.h"
#include "grafting/kernels/lora_kernel.h"
#include "grafting/step_plan.h"

namespace graft {

// Where the terms of one adapter act: per site index, which terms. Looked up once per adapter.
struct AdapterSites {
  std::vector<const std::vector<const ResidentTerm*>*> by_site;  // null = none
};

// One (adapter, scale) of a step with the rows it acts on, ascending.
struct StepGroup {
  const ResidentAdapter* adapter = nullptr;
  float scale = 1.0F;
  const AdapterSites* sites = nullptr;
  std::vector<LoraItem> token_items;   // rows of the batch
  std::vector<LoraItem> output_items;  // rows among the outputs
  std::vector<LoraItem> lookup_items;  // rows of the batch, x_row = token id
};

// The work of one site node in this step.
struct SiteWork {
  const SiteNode* node = nullptr;
  std::vector<LoraWork> work;
};

class ModuleStep {
 public:
  explicit ModuleStep(const SiteTable& sites) : sites_(sites) {}

  // Whether every term has a site of its shape. Any thread.
  static Status check_attachable(const SiteTable& sites, const ResidentAdapter& adapter);

  // Lists the step's groups. True when they act on the same rows as those of the last step: what
  // was built from them is then still right, and only the looked-up tokens were replaced.
  bool update_groups(const StepPlan& plan);

  // Builds the site work of the groups. Errors: a site that an adapter needs has rows that cannot
  // be told apart in this graph.
  Status build_site_work(const GraphIndex& index);

  // Site nodes with work in this step, in order of the graph.
  std::span<SiteWork> site_work() { return {site_work_.data(), n_site_work_}; }
  bool has_groups() const { return groups_.n > 0; }
  // What the site work was built from.
  std::span<const StepGroup> groups() { return groups_.used(); }

  // Another adapter may come to live at this address: groups must not be taken for the same.
  void forget(const ResidentAdapter* adapter) {
    adapter_sites_.erase(adapter);
    groups_.n = 0;
  }

 private:
  // Groups of one step; the vectors are kept for the next one.
  struct GroupList {
    std::vector<StepGroup> storage;
    std::size_t n = 0;

    std::span<StepGroup> used() { return {storage.data(), n}; }
  };

  void add_rows(const StepPlan& plan);
  // Of that adapter and scale, without the row.
  StepGroup& group_without(std::int32_t row, const PlannedAttachment& attachment);
  SiteWork& next_site_work(const SiteNode& node);
  const AdapterSites& sites_of(const ResidentAdapter& adapter);

  const SiteTable& sites_;
  std::unordered_map<const ResidentAdapter*, AdapterSites> adapter_sites_;
  GroupList groups_;  // what the site work was built from
  GroupList next_;
  std::vector<SiteWork> site_work_;
  std::size_t n_site_work_ = 0;
};

}  // namespace graft
