#include "router/near_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace graft {
namespace {

constexpr std::size_t kMaxNameBytes = 128;  // bounds the quadratic distance
constexpr std::size_t kMaxNearNames = 3;

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string> near_names(std::string_view name, const std::vector<std::string>& known) {
  if (name.empty() || name.size() > kMaxNameBytes) return {};
  const std::size_t limit = std::max<std::size_t>(2, name.size() / 3);
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& candidate : known) {
    if (candidate.size() > kMaxNameBytes) continue;
    if (candidate.starts_with(name)) {
      ranked.emplace_back(1, candidate);
      continue;
    }
    const std::size_t longer = std::max(candidate.size(), name.size());
    const std::size_t shorter = std::min(candidate.size(), name.size());
    if (longer - shorter > limit) continue;
    const std::size_t distance = edit_distance(name, candidate);
    // A distance as long as the name would suggest anything for one- and two-letter names.
    if (distance <= limit && distance < longer) ranked.emplace_back(distance, candidate);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> near;
  for (std::size_t i = 0; i < std::min(ranked.size(), kMaxNearNames); ++i) {
    near.push_back(std::move(ranked[i].second));
  }
  return near;
}

}  // namespace graft
