#include "text/token_trie.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace graft {

TokenTrie::TokenTrie(const Vocabulary& vocabulary) {
  const auto piece = [&](TokenId token) { return vocabulary.visible_piece(token, false); };
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    const bool is_text = !piece(token).empty() && !vocabulary.is_end_of_generation(token) &&
                         piece(token).size() <= std::numeric_limits<std::uint16_t>::max();
    if (is_text) tokens_.push_back(token);
  }
  std::sort(tokens_.begin(), tokens_.end(), [&](TokenId a, TokenId b) {
    return piece(a) != piece(b) ? piece(a) < piece(b) : a < b;
  });
  std::vector<std::uint32_t> path;  // nodes from the root to the last one
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
    }
  };
  std::string_view last;
  for (std::uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = piece(tokens_[i]);
    const auto [end, _] = std::mismatch(text.begin(), text.end(), last.begin(), last.end());
    close(static_cast<std::size_t>(end - text.begin()));
    while (path.size() < text.size()) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({.first_token = i,
                        .depth = static_cast<std::uint16_t>(path.size()),
                        .byte = static_cast<std::uint8_t>(text[path.size() - 1])});
    }
    ++nodes_[path.back()].n_tokens;
    max_depth_ = std::max(max_depth_, text.size());
    last = text;
  }
  close(0);
}

}  // namespace graft
