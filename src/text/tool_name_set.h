// ToolNameSet: the names of the tools that an answer may call. Immutable; any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace graft {

class ToolNameSet {
 public:
  explicit ToolNameSet(std::vector<std::string> names) : names_(std::move(names)) {
    std::sort(names_.begin(), names_.end());
  }

  bool empty() const { return names_.empty(); }
  bool contains(std::string_view name) const {
    return std::binary_search(names_.begin(), names_.end(), name, std::less<>());
  }
  bool begins_longer(std::string_view name) const {
    const auto next = std::upper_bound(names_.begin(), names_.end(), name, std::less<>());
    return next != names_.end() && std::string_view(*next).starts_with(name);
  }

 private:
  std::vector<std::string> names_;  // ascending
};

}  // namespace graft
