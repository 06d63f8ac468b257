#include "text/grammar_checks.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace graft {
namespace {

// Which rules can be completed; with `empty_only`, without any character or token. Counts down, per
// alternative, the symbols that are not known to be completed.
std::vector<bool> find_completable(const GrammarSource& source, bool empty_only) {
  struct Alternative {
    std::uint32_t rule = 0;
    std::size_t n_open = 0;
  };
  std::vector<Alternative> alternatives;
  std::vector<std::vector<std::size_t>> users(source.rules.size());  // alternatives, per rule
  std::vector<bool> completable(source.rules.size(), false);
  std::vector<std::uint32_t> fresh;
  const auto mark = [&](std::uint32_t rule) {
    if (completable[rule]) return;
    completable[rule] = true;
    fresh.push_back(rule);
  };
  const auto add = [&](std::uint32_t rule, const std::vector<GrammarSymbol>& symbols) {
    std::size_t n_open = 0;
    for (const GrammarSymbol& symbol : symbols) {
      if (symbol.kind == GrammarSymbol::kRule) {
        users[symbol.value].push_back(alternatives.size());
        ++n_open;
      } else if (empty_only) {
        ++n_open;  // for good
      }
    }
    alternatives.push_back({rule, n_open});
    if (n_open == 0) mark(rule);
  };
  for (std::uint32_t rule = 0; rule < source.rules.size(); ++rule) {
    for (const auto& symbols : source.rules[rule].alternatives) add(rule, symbols);
  }
  while (!fresh.empty()) {
    const std::uint32_t rule = fresh.back();
    fresh.pop_back();
    for (const std::size_t user : users[rule]) {
      if (--alternatives[user].n_open == 0) mark(alternatives[user].rule);
    }
  }
  return completable;
}

struct Edge {
  std::uint32_t to = 0;
  bool grows = false;  // something of the rule stands behind
};
using Edges = std::vector<std::vector<Edge>>;

// rule -> the rules that it can begin with.
Edges find_left_edges(const GrammarSource& source) {
  const std::vector<bool> nullable = find_completable(source, /*empty_only=*/true);
  Edges edges(source.rules.size());
  for (std::size_t rule = 0; rule < source.rules.size(); ++rule) {
    for (const auto& symbols : source.rules[rule].alternatives) {
      for (std::size_t i = 0; i < symbols.size(); ++i) {
        if (symbols[i].kind != GrammarSymbol::kRule) break;
        edges[rule].push_back({symbols[i].value, i + 1 < symbols.size()});
        if (!nullable[symbols[i].value]) break;
      }
    }
  }
  return edges;
}

// Tarjan's strongly connected components, without recursion: the graph comes from a request.
class Components {
 public:
  explicit Components(const Edges& edges)
      : edges_(edges),
        order_(edges.size(), kNone),
        low_(edges.size()),
        component_(edges.size(), kNone) {
    for (std::uint32_t rule = 0; rule < edges.size(); ++rule) {
      if (order_[rule] == kNone) visit(rule);
    }
  }

  std::uint32_t of(std::uint32_t rule) const { return component_[rule]; }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  void enter(std::uint32_t rule) {
    order_[rule] = low_[rule] = n_entered_++;
    open_.push_back(rule);
    path_.emplace_back(rule, 0);
  }

  void visit(std::uint32_t root) {
    enter(root);
    while (!path_.empty()) {
      auto& [rule, next] = path_.back();
      if (next < edges_[rule].size()) {
        const std::uint32_t to = edges_[rule][next++].to;
        if (order_[to] == kNone) {
          enter(to);  // invalidates the reference above
        } else if (component_[to] == kNone) {
          low_[rule] = std::min(low_[rule], order_[to]);
        }
        continue;
      }
      leave();
    }
  }

  void leave() {
    const std::uint32_t rule = path_.back().first;
    path_.pop_back();
    if (!path_.empty()) {
      std::uint32_t& above = low_[path_.back().first];
      above = std::min(above, low_[rule]);
    }
    if (low_[rule] != order_[rule]) return;
    for (bool more = true; more;) {
      more = open_.back() != rule;
      component_[open_.back()] = rule;
      open_.pop_back();
    }
  }

  const Edges& edges_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> low_;
  std::vector<std::uint32_t> component_;
  std::vector<std::uint32_t> open_;
  std::vector<std::pair<std::uint32_t, std::size_t>> path_;  // rule, its next edge
  std::uint32_t n_entered_ = 0;
};

}  // namespace

std::optional<std::uint32_t> find_left_recursion(const GrammarSource& source) {
  const Edges edges = find_left_edges(source);
  const Components components(edges);
  for (std::uint32_t rule = 0; rule < edges.size(); ++rule) {
    for (const Edge& edge : edges[rule]) {
      if (edge.grows && components.of(rule) == components.of(edge.to)) return rule;
    }
  }
  return std::nullopt;
}

std::vector<bool> find_completable_rules(const GrammarSource& source) {
  return find_completable(source, /*empty_only=*/false);
}

}  // namespace graft
