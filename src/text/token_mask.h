// TokenMask: a set of tokens of one vocabulary, as bits. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/request.h"

namespace graft {

class TokenMask {
 public:
  // Empties it. Requires: n_vocab >= 0; tokens below are in 0 .. n_vocab - 1.
  void reset(std::int32_t n_vocab) {
    words_.assign((static_cast<std::size_t>(n_vocab) + 63) / 64, 0);
  }
  void add(TokenId token) { words_[index(token)] |= bit(token); }
  void remove(TokenId token) { words_[index(token)] &= ~bit(token); }
  bool contains(TokenId token) const { return (words_[index(token)] & bit(token)) != 0; }

 private:
  static std::size_t index(TokenId token) { return static_cast<std::size_t>(token) / 64; }
  static std::uint64_t bit(TokenId token) { return std::uint64_t{1} << (token % 64); }

  std::vector<std::uint64_t> words_;
};

}  // namespace graft
