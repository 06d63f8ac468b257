// PrefixIndex: which cached prefixes lie in cells of the KV memory (the hot tier): a radix tree
// over tokens and their roles under one root per root text. Bookkeeping only: it says which
// sequence numbers (holders) stand for which tokens; the caller moves the cells.
//
// A node is a run of tokens of one role. Every leaf has one holder, which holds the cells of the
// whole path from position 0 to the leaf's end; inner nodes have none, their cells are held by the
// leaves below. So the cells of a leaf's own run belong to its holder alone, and taking a leaf away
// frees exactly those.
//
// Value of a leaf: what computing its tokens again costs, times how often they were wanted of late,
// per cell. Interest halves every `half_life` events; with a short one the order is least recently
// used first.
//
// Belongs to the engine thread. Invariants (check_invariants): leaves have holders and inner nodes
// do not; a node begins where its parent ends; children differ in role or first token; counts are
// those of the tree.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/kv/prefix_path.h"
#include "engine/kv/tenant_shares.h"

namespace graft {

struct HotMatch {
  std::int32_t n_tokens = 0;
  std::int32_t holder = -1;  // holds at least those tokens; -1 when there are none
  bool ends_leaf = false;    // all of that holder's tokens match: it may grow
};

struct HotLeaf {
  std::int32_t holder = -1;
  std::int32_t begin = 0;  // its own run: the holder's last tokens
  std::int32_t end = 0;
  double value = 0;
  std::string_view tenant;
};

class PrefixIndex {
 public:
  explicit PrefixIndex(double half_life = 256);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The longest known beginning of `path`.
  HotMatch find(const PrefixPath& path) const;
  // Somebody used the first tokens of `path`, as find() gave them.
  void touch(const PrefixPath& path);
  // The whole path is known from now on, under `holder`. Requires: find(path) matches less than the
  // path; when it ends a leaf, `holder` is that leaf's, else one that is not in use.
  void insert(const PrefixPath& path, std::int32_t holder);

  // A leaf gives up what lies behind its first `n_tokens` tokens. Requires: n_tokens within the
  // leaf's run, or its begin: then the leaf goes, and its parent takes over the holder unless it
  // has other leaves. Returns how many tokens the holder keeps; 0 = it is in use no more.
  std::int32_t cut(std::int32_t holder, std::int32_t n_tokens);

  std::vector<HotLeaf> leaves() const;
  HotLeaf leaf(std::int32_t holder) const;
  OwnedPath path_of(std::int32_t holder) const;
  bool has_holder(std::int32_t holder) const { return leaves_.count(holder) > 0; }
  // Some leaf with a token of that role on its path, and where the first such token is.
  std::optional<std::pair<std::int32_t, std::int32_t>> find_role(std::string_view role) const;

  std::int32_t n_cells() const { return static_cast<std::int32_t>(shares_.total()); }
  std::int32_t n_leaves() const { return static_cast<std::int32_t>(leaves_.size()); }
  const TenantShares& shares() const { return shares_; }

  void check_invariants() const;

 private:
  struct Node;
  struct Root;
  struct Walk {
    Node* node = nullptr;       // last node that matched, null when there is no root
    std::int32_t in_node = 0;   // how many of its tokens
    std::int32_t n_tokens = 0;  // in all
  };

  Walk walk(const PrefixPath& path) const;
  static Node* any_leaf(Node* node);
  Node* split(Node* node, std::int32_t at);
  Node* add_child(Node* parent, const PrefixPath& path, std::int32_t begin);
  void warm_up(Node& node, double amount) const;
  HotLeaf describe(const Node& node) const;
  void remove(Node* node);

  double half_life_;
  std::int64_t now_ = 0;  // events so far
  std::map<std::string, std::unique_ptr<Root>, std::less<>> roots_;
  std::unordered_map<std::int32_t, Node*> leaves_;  // by holder
  TenantShares shares_;                             // in cells
};

}  // namespace graft
