// TokenTrie: the pieces of a vocabulary as a prefix tree over bytes, so that a constraint follows
// each shared beginning once. Tokens without visible text (control tokens) are left out. Immutable;
// any thread. Borrows nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/request.h"
#include "text/vocabulary.h"

namespace graft {

class TokenTrie {
 public:
  // One byte behind its parent's. Nodes lie in the order of a walk: a node's descendants follow it,
  // up to `end`.
  struct Node {
    std::uint32_t end = 0;
    std::uint32_t first_token = 0;  // in tokens(): those whose piece ends here
    std::uint32_t n_tokens = 0;
    std::uint16_t depth = 0;  // bytes from the root, at least 1
    std::uint8_t byte = 0;
  };

  explicit TokenTrie(const Vocabulary& vocabulary);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> tokens(const Node& node) const {
    return {tokens_.data() + node.first_token, node.n_tokens};
  }
  std::size_t max_depth() const { return max_depth_; }

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  std::size_t max_depth_ = 0;
};

}  // namespace graft
