#include "text/special_text.h"

#include <algorithm>
#include <cstdint>

namespace graft {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

}  // namespace

SpecialText::SpecialText(std::vector<std::string> texts) : sorted_(std::move(texts)) {
  std::erase_if(sorted_, [](const std::string& text) { return text.empty(); });
  std::sort(sorted_.begin(), sorted_.end());
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end()), sorted_.end());
  for (const std::string& text : sorted_) {
    ++first_[byte_at(text, 0) + std::size_t{1}];
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    first_[byte + 1] += first_[byte];
  }
}

std::size_t SpecialText::longest_at(std::string_view text, std::size_t at) const {
  const std::uint8_t start = byte_at(text, at);
  auto low = sorted_.begin() + static_cast<std::ptrdiff_t>(first_[start]);
  auto high = sorted_.begin() + static_cast<std::ptrdiff_t>(first_[start + std::size_t{1}]);
  std::size_t longest = 0;
  // All texts in [low, high) agree with `text` in their first `length` bytes; the shortest, if it
  // ends there, is the first of them.
  for (std::size_t length = 1; low != high; ++length) {
    if (low->size() == length) {
      longest = length;
      ++low;
    }
    if (at + length >= text.size()) {
      break;
    }
    const std::uint8_t next = byte_at(text, at + length);
    low = std::partition_point(low, high,
                               [&](const std::string& s) { return byte_at(s, length) < next; });
    high = std::partition_point(low, high,
                                [&](const std::string& s) { return byte_at(s, length) <= next; });
  }
  return longest;
}

bool SpecialText::occurs_in(std::string_view text) const {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (longest_at(text, at) > 0) {
      return true;
    }
  }
  return false;
}

}  // namespace graft
