#include "metrics/module_table.h"

namespace graft {

ModuleSeries& ModuleTable::series_of(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = series_.find(name);
  if (found != series_.end()) return *found->second;
  // The base and "other" are not counted among the names.
  const std::size_t n_reserved = series_.count(kBaseName) + series_.count(kOtherName);
  const bool has_room = name == kBaseName || series_.size() - n_reserved < kMaxNames;
  std::unique_ptr<ModuleSeries>& series = series_[has_room ? name : kOtherName];
  if (series == nullptr) series = std::make_unique<ModuleSeries>();
  return *series;
}

std::vector<std::pair<std::string, const ModuleSeries*>> ModuleTable::all() const {
  MutexLock lock(mutex_);
  std::vector<std::pair<std::string, const ModuleSeries*>> all;
  all.reserve(series_.size());
  for (const auto& [name, series] : series_) all.emplace_back(name, series.get());
  return all;
}

}  // namespace graft
