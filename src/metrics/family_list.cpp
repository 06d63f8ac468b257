#include "metrics/family_list.h"

namespace graft {

FamilyList& FamilyList::family(std::string name, Type type, std::string help) {
  prometheus::MetricFamily made;
  made.name = std::move(name);
  made.help = std::move(help);
  made.type = type;
  families_.push_back(std::move(made));
  return *this;
}

FamilyList& FamilyList::value(double value, MetricLabels labels) {
  prometheus::MetricFamily& family = families_.back();
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  (family.type == Type::Counter ? metric.counter.value : metric.gauge.value) = value;
  return *this;
}

FamilyList& FamilyList::histogram(const HistogramSnapshot& snapshot, double n_per_unit,
                                  MetricLabels labels) {
  prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
  metric.label = std::move(labels);
  std::uint64_t n_values = 0;
  for (std::size_t i = 0; i < snapshot.bounds.size(); ++i) {
    n_values += static_cast<std::uint64_t>(snapshot.counts[i]);
    metric.histogram.bucket.push_back(
        {n_values, static_cast<double>(snapshot.bounds[i]) / n_per_unit});
  }
  n_values += static_cast<std::uint64_t>(snapshot.counts.back());
  metric.histogram.sample_count = n_values;
  metric.histogram.sample_sum = static_cast<double>(snapshot.sum) / n_per_unit;
  return *this;
}

}  // namespace graft
