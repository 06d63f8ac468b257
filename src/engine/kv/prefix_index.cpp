#include "engine/kv/prefix_index.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace graft {

namespace {

// A token's own work is constant; attention adds as much again at about this position.
constexpr double kAttentionDoublesAt = 8192;

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

struct PrefixIndex::Node {
  using Key = std::pair<TokenId, std::string>;  // first token and role

  Node* parent = nullptr;  // null for the root's node
  Root* root = nullptr;
  std::int32_t begin = 0;
  std::vector<TokenId> tokens;  // empty for the root's node alone
  std::string role;
  std::map<Key, std::unique_ptr<Node>> children;
  std::int32_t holder = -1;
  double interest = 0;  // as of `used_at`
  std::int64_t used_at = 0;

  std::int32_t n_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t end() const { return begin + n_tokens(); }
};

struct PrefixIndex::Root {
  std::string text;
  std::string tenant;
  Node node;
};

PrefixIndex::PrefixIndex(double half_life) : half_life_(half_life) {}
PrefixIndex::~PrefixIndex() = default;

PrefixIndex::Walk PrefixIndex::walk(const PrefixPath& path) const {
  const auto root = roots_.find(path.root);
  if (root == roots_.end()) return {};
  Walk walk{&root->second->node, 0, 0};
  while (walk.n_tokens < path.n_tokens()) {
    const std::int32_t begin = walk.n_tokens;
    const RoleRun& run = path.roles[path.role_at(begin)];
    const auto child = walk.node->children.find({path.tokens[index(begin)], run.role});
    if (child == walk.node->children.end()) break;
    Node& node = *child->second;
    const std::int32_t n_most = std::min(node.n_tokens(), path.role_end(begin) - begin);
    const auto tokens = path.tokens.subspan(index(begin), index(n_most));
    const auto differs = std::mismatch(tokens.begin(), tokens.end(), node.tokens.begin());
    const auto n_equal = static_cast<std::int32_t>(differs.first - tokens.begin());
    walk = {&node, n_equal, begin + n_equal};
    if (n_equal < node.n_tokens()) break;
  }
  return walk;
}

PrefixIndex::Node* PrefixIndex::any_leaf(Node* node) {
  while (!node->children.empty()) node = node->children.begin()->second.get();
  return node;
}

HotMatch PrefixIndex::find(const PrefixPath& path) const {
  const Walk found = walk(path);
  if (found.n_tokens == 0) return {};
  const Node* leaf = any_leaf(found.node);
  return {found.n_tokens, leaf->holder, leaf == found.node && found.n_tokens == leaf->end()};
}

// Brings the interest up to now and adds to it.
void PrefixIndex::warm_up(Node& node, double amount) const {
  const auto age = static_cast<double>(now_ - node.used_at);
  node.interest = node.interest * std::exp2(-age / half_life_) + amount;
  node.used_at = now_;
}

void PrefixIndex::touch(const PrefixPath& path) {
  ++now_;
  for (Node* node = walk(path).node; node != nullptr && node->parent != nullptr;
       node = node->parent) {
    warm_up(*node, 1);
  }
}

// Makes two nodes of one; the lower part stays the same object and keeps holder and children.
PrefixIndex::Node* PrefixIndex::split(Node* node, std::int32_t at) {
  auto& siblings = node->parent->children;
  const auto entry = siblings.find({node->tokens.front(), node->role});
  std::unique_ptr<Node> lower = std::move(entry->second);
  auto upper = std::make_unique<Node>();
  upper->parent = node->parent;
  upper->root = node->root;
  upper->begin = node->begin;
  upper->role = node->role;
  upper->interest = node->interest;
  upper->used_at = node->used_at;
  const auto middle = node->tokens.begin() + at;
  upper->tokens.assign(node->tokens.begin(), middle);
  node->tokens.erase(node->tokens.begin(), middle);
  node->begin += at;
  node->parent = upper.get();
  upper->children.emplace(Node::Key{node->tokens.front(), node->role}, std::move(lower));
  entry->second = std::move(upper);
  return entry->second.get();
}

// A node for the path's tokens from `begin` to the end of their role.
PrefixIndex::Node* PrefixIndex::add_child(Node* parent, const PrefixPath& path,
                                          std::int32_t begin) {
  auto node = std::make_unique<Node>();
  const std::int32_t end = path.role_end(begin);
  const auto tokens = path.tokens.subspan(index(begin), index(end - begin));
  node->parent = parent;
  node->root = parent->root;
  node->begin = begin;
  node->role = path.roles[path.role_at(begin)].role;
  node->tokens.assign(tokens.begin(), tokens.end());
  node->used_at = now_;
  node->interest = 1;
  shares_.add(node->root->tenant, end - begin);
  Node* added = node.get();
  parent->children.emplace(Node::Key{tokens.front(), added->role}, std::move(node));
  return added;
}

void PrefixIndex::insert(const PrefixPath& path, std::int32_t holder) {
  ++now_;
  Walk found = walk(path);
  GRAFT_CHECK(found.n_tokens < path.n_tokens());
  if (found.node == nullptr) {
    auto root = std::make_unique<Root>();
    root->text = path.root;
    root->tenant = path.tenant;
    root->node.root = root.get();
    found.node = &root->node;
    roots_.emplace(root->text, std::move(root));
  }
  Node* node = found.node;
  if (found.in_node < node->n_tokens()) node = split(node, found.in_node);
  const bool grows = node->parent != nullptr && node->children.empty();
  GRAFT_CHECK(grows ? node->holder == holder : !has_holder(holder));
  node->holder = -1;
  for (std::int32_t begin = found.n_tokens; begin < path.n_tokens(); begin = node->end()) {
    node = add_child(node, path, begin);
  }
  node->holder = holder;
  leaves_[holder] = node;
}

void PrefixIndex::remove(Node* node) {
  Node* parent = node->parent;
  leaves_.erase(node->holder);
  parent->children.erase({node->tokens.front(), node->role});
  if (parent->parent == nullptr && parent->children.empty()) roots_.erase(parent->root->text);
}

std::int32_t PrefixIndex::cut(std::int32_t holder, std::int32_t n_tokens) {
  Node* node = leaves_.at(holder);
  GRAFT_CHECK(n_tokens >= node->begin && n_tokens < node->end());
  shares_.add(node->root->tenant, n_tokens - node->end());
  if (n_tokens > node->begin) {
    node->tokens.resize(index(n_tokens - node->begin));
    return n_tokens;
  }
  Node* parent = node->parent;
  const bool inherits = parent->parent != nullptr && parent->children.size() == 1;
  remove(node);  // may take the root, and with it the parent, away
  if (!inherits) return 0;
  parent->holder = holder;
  leaves_[holder] = parent;
  return parent->end();
}

HotLeaf PrefixIndex::describe(const Node& node) const {
  const auto age = static_cast<double>(now_ - node.used_at);
  const double middle = node.begin + 0.5 * node.n_tokens();
  const double cost_per_cell = 1 + middle / kAttentionDoublesAt;
  return {node.holder, node.begin, node.end(),
          cost_per_cell * node.interest * std::exp2(-age / half_life_), node.root->tenant};
}

std::vector<HotLeaf> PrefixIndex::leaves() const {
  std::vector<HotLeaf> all;
  all.reserve(leaves_.size());
  for (const auto& entry : leaves_) all.push_back(describe(*entry.second));
  return all;
}

HotLeaf PrefixIndex::leaf(std::int32_t holder) const { return describe(*leaves_.at(holder)); }

OwnedPath PrefixIndex::path_of(std::int32_t holder) const {
  std::vector<const Node*> nodes;
  for (const Node* node = leaves_.at(holder); node->parent != nullptr; node = node->parent) {
    nodes.push_back(node);
  }
  OwnedPath path{nodes.front()->root->text, nodes.front()->root->tenant, {}, {}};
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    path.tokens.insert(path.tokens.end(), (*node)->tokens.begin(), (*node)->tokens.end());
    if (path.roles.empty() || path.roles.back().role != (*node)->role) {
      path.roles.push_back({(*node)->begin, (*node)->role});
    }
  }
  return path;
}

std::optional<std::pair<std::int32_t, std::int32_t>> PrefixIndex::find_role(
    std::string_view role) const {
  for (const auto& [holder, leaf] : leaves_) {
    std::int32_t first = -1;
    for (const Node* node = leaf; node->parent != nullptr; node = node->parent) {
      if (node->role == role) first = node->begin;
    }
    if (first >= 0) return std::pair(holder, first);
  }
  return std::nullopt;
}

void PrefixIndex::check_invariants() const {
  std::int64_t n_cells = 0;
  std::size_t n_leaves = 0;
  std::vector<const Node*> open;
  for (const auto& [text, root] : roots_) {
    GRAFT_CHECK(!root->node.children.empty() && root->node.holder < 0 && text == root->text);
    open.push_back(&root->node);
  }
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    n_cells += node->n_tokens();
    GRAFT_CHECK(node->parent == nullptr || !node->tokens.empty());
    GRAFT_CHECK(node->children.empty() == (node->holder >= 0));
    if (node->holder >= 0) GRAFT_CHECK(leaves_.at(node->holder) == node);
    n_leaves += node->holder >= 0 ? 1 : 0;
    for (const auto& [key, child] : node->children) {
      GRAFT_CHECK(child->parent == node && child->begin == node->end());
      GRAFT_CHECK(key == Node::Key(child->tokens.front(), child->role));
      open.push_back(child.get());
    }
  }
  GRAFT_CHECK(n_leaves == leaves_.size());
  GRAFT_CHECK(n_cells == shares_.total());
}

}  // namespace graft
