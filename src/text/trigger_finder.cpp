#include "text/trigger_finder.h"

#include <utility>

namespace graft {

Result<TriggerFinder> TriggerFinder::create(const std::vector<GrammarTrigger>& triggers) {
  std::vector<std::string> words;
  std::vector<std::regex> patterns;
  for (const GrammarTrigger& trigger : triggers) {
    if (trigger.text.empty() || trigger.text.size() > kTailBytes) {
      return invalid_argument("a grammar's trigger must have 1 to " + std::to_string(kTailBytes) +
                              " bytes");
    }
    if (!trigger.is_pattern) {
      words.push_back(trigger.text);
      continue;
    }
    try {
      patterns.emplace_back(trigger.text, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error&) {
      return invalid_argument("a grammar's trigger is no regular expression");
    }
  }
  TriggerFinder finder(words);
  finder.patterns_ = std::move(patterns);
  return finder;
}

std::optional<std::string> TriggerFinder::push(std::string_view text) {
  if (tail_.size() > 4 * kTailBytes) {
    tail_.erase(0, tail_.size() - kTailBytes);
    is_whole_ = false;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    tail_ += text[i];
    if (const std::size_t length = words_.push(text[i]); length > 0) {
      return tail_.substr(tail_.size() - length).append(text.substr(i + 1));
    }
  }
  const auto begin = patterns_.empty() || text.empty() ? std::nullopt : find_pattern();
  if (!begin) return std::nullopt;
  return tail_.substr(*begin);
}

std::optional<std::size_t> TriggerFinder::find_pattern() const {
  const std::size_t skipped = tail_.size() > kTailBytes ? tail_.size() - kTailBytes : 0;
  const auto from = tail_.begin() + static_cast<std::ptrdiff_t>(skipped);
  auto flags = std::regex_constants::match_default;
  if (skipped > 0 || !is_whole_) flags |= std::regex_constants::match_not_bol;
  for (const std::regex& pattern : patterns_) {
    std::smatch match;
    try {
      if (!std::regex_search(from, tail_.end(), match, pattern, flags)) continue;
    } catch (const std::regex_error&) {
      continue;  // too much work: not found here
    }
    for (std::size_t group = 1; group < match.size(); ++group) {
      if (match[group].matched) return skipped + static_cast<std::size_t>(match.position(group));
    }
    return skipped + static_cast<std::size_t>(match.position(0));
  }
  return std::nullopt;
}

}  // namespace graft
