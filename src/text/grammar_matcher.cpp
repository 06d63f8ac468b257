#include "text/grammar_matcher.h"

#include <algorithm>
#include <utility>

namespace graft {

GrammarMatcher::GrammarMatcher(const Grammar& grammar) : grammar_(grammar) { forget(); }

void GrammarMatcher::forget() {
  ++epoch_;
  nodes_.assign(1, Node{});
  node_ids_.clear();
  seen_.assign(1, 0);
  round_ = 0;
  sets_.clear();
  set_ids_.clear();
  steps_.clear();
  add_set({});  // kDead
}

GrammarMatcher::Place GrammarMatcher::begin(const Place& keep) {
  work_left_ = kMaxMatcherWork;
  if (nodes_.size() <= kMaxNodes && steps_.size() <= kMaxSteps) return keep;
  // The kept stacks, from their bottoms up: a node is always younger than the one below it.
  const std::vector<Node> old = std::move(nodes_);
  Set kept = std::move(sets_[keep.set]);
  forget();
  std::vector<NodeId> needed;
  std::vector<bool> is_needed(old.size(), false);
  for (NodeId top : kept.tops) {
    for (; top != kEmpty && !is_needed[top]; top = old[top].below) {
      is_needed[top] = true;
      needed.push_back(top);
    }
  }
  std::sort(needed.begin(), needed.end());
  std::vector<NodeId> renamed(old.size(), kEmpty);
  for (const NodeId node : needed) {
    renamed[node] = intern(old[node].position, renamed[old[node].below]);
  }
  for (NodeId& top : kept.tops) top = renamed[top];
  return {keep.is_dead() ? kDead : intern(std::move(kept)), keep.partial};
}

GrammarMatcher::NodeId GrammarMatcher::intern(std::uint32_t position, NodeId below) {
  const std::uint64_t key = (std::uint64_t{position} << 32) | below;
  const auto [entry, is_new] = node_ids_.emplace(key, static_cast<NodeId>(nodes_.size()));
  if (is_new) {
    nodes_.push_back({position, below});
    seen_.push_back(0);
  }
  return entry->second;
}

// The stack once the symbol on top is done with.
GrammarMatcher::NodeId GrammarMatcher::behind(const Node& node) {
  const std::uint32_t next = node.position + 1;
  return grammar_.symbol(next).kind == GrammarSymbol::kEnd ? node.below : intern(next, node.below);
}

// Adds to `set` the stacks that `stack` becomes when the rules on top are opened.
void GrammarMatcher::open(NodeId stack, Set& set) {
  todo_.push_back(stack);
  while (!todo_.empty()) {
    const NodeId id = todo_.back();
    todo_.pop_back();
    if (seen_[id] == round_) continue;
    seen_[id] = round_;
    if (--work_left_ < 0) {
      todo_.clear();
      return;
    }
    if (id == kEmpty) {
      set.may_end = true;
      continue;
    }
    const Node node = nodes_[id];
    if (grammar_.symbol(node.position).kind == GrammarSymbol::kRule) {
      open_rule(node);
    } else {
      set.tops.push_back(id);
    }
  }
}

void GrammarMatcher::open_rule(const Node& node) {
  const NodeId below = behind(node);
  const auto alternatives = grammar_.alternatives(grammar_.symbol(node.position).value);
  work_left_ -= static_cast<std::int64_t>(alternatives.size());
  for (const std::uint32_t first : alternatives) {
    const bool is_empty = grammar_.symbol(first).kind == GrammarSymbol::kEnd;
    todo_.push_back(is_empty ? below : intern(first, below));
  }
}

GrammarMatcher::SetId GrammarMatcher::intern(Set set) {
  if (set.tops.size() > kMaxTops) work_left_ = -1;
  if (exhausted() || (set.tops.empty() && !set.may_end)) return kDead;
  std::sort(set.tops.begin(), set.tops.end());
  std::size_t hash = set.may_end ? 1 : 2;
  for (const NodeId top : set.tops) hash = (hash ^ top) * 0x9E3779B97F4A7C15;
  const auto [first, last] = set_ids_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    const Set& known = sets_[entry->second];
    if (known.may_end == set.may_end && known.tops == set.tops) return entry->second;
  }
  const auto id = static_cast<SetId>(sets_.size());
  set_ids_.emplace(hash, id);
  add_set(std::move(set));
  return id;
}

void GrammarMatcher::add_set(Set set) {
  work_left_ -= grammar_.n_classes() / 32;
  sets_.push_back(std::move(set));
  steps_.resize(sets_.size() * grammar_.n_classes(), kUnknown);
}

GrammarMatcher::Place GrammarMatcher::start() {
  Set set;
  ++round_;
  for (const std::uint32_t first : grammar_.alternatives(grammar_.root())) {
    const bool is_empty = grammar_.symbol(first).kind == GrammarSymbol::kEnd;
    open(is_empty ? kEmpty : intern(first, kEmpty), set);
  }
  return {intern(std::move(set)), {}};
}

GrammarMatcher::SetId GrammarMatcher::next_set(SetId from, std::uint32_t character_class) {
  const std::size_t cell = std::size_t{from} * grammar_.n_classes() + character_class;
  if (steps_[cell] != kUnknown) return steps_[cell];
  Set set;
  ++round_;
  // Looking at a top is cheap beside opening a stack.
  work_left_ -= static_cast<std::int64_t>(sets_[from].tops.size()) / 16 + 1;
  for (std::size_t i = 0; i < sets_[from].tops.size() && !exhausted(); ++i) {
    const Node top = nodes_[sets_[from].tops[i]];
    const GrammarSymbol symbol = grammar_.symbol(top.position);
    if (symbol.kind != GrammarSymbol::kCharacters) continue;
    if (grammar_.set_has_class(symbol.value, character_class)) open(behind(top), set);
  }
  const SetId to = intern(std::move(set));
  if (!exhausted()) steps_[cell] = to;
  return to;
}

GrammarMatcher::Place GrammarMatcher::next(const Place& place, std::uint8_t byte) {
  if (place.is_dead()) return {};
  Place result = place;
  if (!push_utf8(result.partial, byte)) return {};
  if (!result.partial.empty()) return result;
  result.set = next_set(place.set, grammar_.class_of(result.partial.value));
  result.partial = {};
  return result;
}

GrammarMatcher::Place GrammarMatcher::next(Place place, std::string_view bytes) {
  for (const char byte : bytes) {
    if (place.is_dead()) break;
    place = next(place, static_cast<std::uint8_t>(byte));
  }
  return place;
}

GrammarMatcher::Place GrammarMatcher::next_token(const Place& place, TokenId token) {
  if (!place.partial.empty()) return {};
  Set set;
  ++round_;
  for (std::size_t i = 0; i < sets_[place.set].tops.size() && !exhausted(); ++i) {
    const Node top = nodes_[sets_[place.set].tops[i]];
    const GrammarSymbol symbol = grammar_.symbol(top.position);
    const bool is_it = symbol.value == static_cast<std::uint32_t>(token);
    if ((symbol.kind == GrammarSymbol::kToken && is_it) ||
        (symbol.kind == GrammarSymbol::kOtherToken && !is_it)) {
      open(behind(top), set);
    }
  }
  return {intern(std::move(set)), {}};
}

GrammarMatcher::Place GrammarMatcher::either(const Place& a, const Place& b) {
  if (a.is_dead() || b.is_dead()) return a.is_dead() ? b : a;
  Set both = sets_[a.set];
  const Set& other = sets_[b.set];
  both.tops.insert(both.tops.end(), other.tops.begin(), other.tops.end());
  std::sort(both.tops.begin(), both.tops.end());
  both.tops.erase(std::unique(both.tops.begin(), both.tops.end()), both.tops.end());
  both.may_end = both.may_end || other.may_end;
  return {intern(std::move(both)), {}};
}

bool GrammarMatcher::is_viable(const Place& place) const {
  if (place.partial.empty()) return !place.is_dead();
  const std::uint32_t first = place.partial.lowest();
  const std::uint32_t last = place.partial.highest();
  const auto& tops = sets_[place.set].tops;
  return std::any_of(tops.begin(), tops.end(), [&](NodeId top) {
    const GrammarSymbol symbol = grammar_.symbol(nodes_[top].position);
    return symbol.kind == GrammarSymbol::kCharacters &&
           grammar_.set_overlaps(symbol.value, first, last);
  });
}

bool GrammarMatcher::may_end(const Place& place) const {
  return place.partial.empty() && sets_[place.set].may_end;
}

bool GrammarMatcher::must_end(const Place& place) const {
  return may_end(place) && sets_[place.set].tops.empty();
}

std::vector<GrammarSymbol> GrammarMatcher::token_symbols(const Place& place) const {
  std::vector<GrammarSymbol> symbols;
  if (!place.partial.empty()) return symbols;
  for (const NodeId top : sets_[place.set].tops) {
    const GrammarSymbol symbol = grammar_.symbol(nodes_[top].position);
    if (symbol.kind != GrammarSymbol::kCharacters) symbols.push_back(symbol);
  }
  return symbols;
}

}  // namespace graft
