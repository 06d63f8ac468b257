// GrammarMatcher: what may follow a beginning, by a compiled grammar. It keeps every way in which
// the beginning can be read, as stacks of what is still open; equal stacks are one, so ambiguity
// costs memory and not time without end. Sets of stacks and the steps between them are remembered,
// which makes most steps a table look-up.
//
// All work is counted: between two calls of begin() at most a fixed number of stacks is looked at,
// then exhausted() is true and everything seems not to fit. Counts depend on the grammar and the
// text alone, never on the machine. Used by one thread at a time; borrows the grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar.h"
#include "text/utf8.h"

namespace graft {

// Some 10 ms.
inline constexpr std::int64_t kMaxMatcherWork = std::int64_t{1} << 17;

class GrammarMatcher {
 public:
  using SetId = std::uint32_t;
  static constexpr SetId kDead = 0;  // nothing fits any more

  // A place in the answer, perhaps inside a character.
  struct Place {
    SetId set = kDead;
    PartialCharacter partial;
    bool is_dead() const { return set == kDead; }
  };

  explicit GrammarMatcher(const Grammar& grammar);

  // A new allowance of work; also drops remembered steps when they are too many. Places made before
  // are invalid afterwards, but the returned one, which is `keep` under its new number.
  Place begin(const Place& keep);
  // A new allowance that leaves all places and sets valid.
  void allow_work(std::int64_t work) { work_left_ = work; }
  // Changes when begin() made all places invalid.
  std::uint32_t epoch() const { return epoch_; }
  bool exhausted() const { return work_left_ < 0; }

  Place start();
  Place next(const Place& place, std::uint8_t byte);
  Place next(Place place, std::string_view bytes);
  // By token symbols: as the token itself, not as its characters.
  Place next_token(const Place& place, TokenId token);
  // Both readings of a beginning. Requires: neither place is inside a character.
  Place either(const Place& a, const Place& b);
  // Whether some character that begins so fits; true outside characters, unless dead.
  bool is_viable(const Place& place) const;

  bool may_end(const Place& place) const;
  bool must_end(const Place& place) const;
  std::uint32_t n_classes() const { return grammar_.n_classes(); }
  SetId next_set(SetId set, std::uint32_t character_class);

  // The token symbols that may come next.
  std::vector<GrammarSymbol> token_symbols(const Place& place) const;

 private:
  using NodeId = std::uint32_t;
  static constexpr NodeId kEmpty = 0;                // the stack of a complete answer
  static constexpr SetId kUnknown = 0xFFFFFFFF;      // a step not yet computed
  static constexpr std::size_t kMaxNodes = 1 << 16;  // remembered from one begin() to the next
  static constexpr std::size_t kMaxSteps = 1 << 18;
  static constexpr std::size_t kMaxTops = 1 << 13;  // of one set

  // A stack: what comes next, on top of what comes behind it.
  struct Node {
    std::uint32_t position = 0;  // in the grammar
    NodeId below = kEmpty;
  };
  struct Set {
    std::vector<NodeId> tops;  // ascending; symbols on top are characters or tokens
    bool may_end = false;
  };

  NodeId intern(std::uint32_t position, NodeId below);
  NodeId behind(const Node& node);
  void open(NodeId stack, Set& set);
  void open_rule(const Node& node);
  SetId intern(Set set);
  void add_set(Set set);
  void forget();

  const Grammar& grammar_;
  std::int64_t work_left_ = kMaxMatcherWork;
  std::uint32_t epoch_ = 0;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, NodeId> node_ids_;
  std::vector<std::uint32_t> seen_;  // per node: the last open() round that saw it
  std::uint32_t round_ = 0;
  std::vector<NodeId> todo_;
  std::vector<Set> sets_;
  std::unordered_multimap<std::size_t, SetId> set_ids_;  // by hash
  std::vector<SetId> steps_;                             // [set][class]
};

}  // namespace graft
