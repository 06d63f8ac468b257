// FamilyList: builds metric families in the order in which they are exposed. Internal to the
// exposition; the only header that knows prometheus-cpp. Used by one thread.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "metrics/atomic_histogram.h"

namespace graft {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

class FamilyList {
 public:
  using Type = prometheus::MetricType;

  explicit FamilyList(std::vector<prometheus::MetricFamily>& families) : families_(families) {}

  // Begins a family; the next values belong to it.
  FamilyList& family(std::string name, Type type, std::string help);

  // Of a counter or a gauge, as the family says.
  FamilyList& value(double value, MetricLabels labels = {});
  FamilyList& value(std::int64_t value, MetricLabels labels = {}) {
    return this->value(static_cast<double>(value), std::move(labels));
  }
  // `n_per_unit` of the histogram's whole numbers are one: 1e6 for microseconds. A division gives
  // the nearest number, and bounds are compared as text.
  FamilyList& histogram(const HistogramSnapshot& snapshot, double n_per_unit,
                        MetricLabels labels = {});

 private:
  std::vector<prometheus::MetricFamily>& families_;
};

// The families, by the dialect they belong to.
struct ExpositionFacts;
struct ServingSnapshot;
class HttpCounters;
class ModuleTable;
void add_graft_families(FamilyList& list, const ServingSnapshot& now, const ExpositionFacts& facts);
void add_http_families(FamilyList& list, const HttpCounters& http);
void add_module_families(FamilyList& list, const ModuleTable& modules,
                         const ExpositionFacts& facts);
void add_vllm_families(FamilyList& list, const ServingSnapshot& now, const ModuleTable& modules,
                       const ExpositionFacts& facts);

}  // namespace graft
