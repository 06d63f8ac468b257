// SpecialText: finds the texts of control tokens, such as "<|im_end|>", inside other text.
//
// Used to keep a request from writing control tokens into a prompt. Immutable; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace graft {

class SpecialText {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;  // one past the last byte
  };

  SpecialText() = default;
  // Empty strings are ignored.
  explicit SpecialText(std::vector<std::string> texts);

  // Calls found(Match) for the longest special text at each position where one starts, in order;
  // matches may overlap. Time is bounded by text size times the longest special text.
  template <typename Found>
  void for_each(std::string_view text, Found found) const {
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (const std::size_t length = longest_at(text, at); length > 0) {
        found(Match{at, at + length});
      }
    }
  }

  bool occurs_in(std::string_view text) const;

 private:
  // Length of the longest special text that starts at text[at]; 0 when there is none.
  std::size_t longest_at(std::string_view text, std::size_t at) const;

  std::vector<std::string> sorted_;
  // sorted_ texts that begin with byte b are [first_[b], first_[b + 1]).
  std::vector<std::size_t> first_ = std::vector<std::size_t>(257, 0);
};

}  // namespace graft
