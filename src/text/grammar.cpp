#include "text/grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "text/grammar_checks.h"
#include "text/utf8.h"

namespace graft {
namespace {

// Sets times classes: 2 MiB of bits.
constexpr std::size_t kMaxMembership = std::size_t{1} << 24;

// U+0000 and surrogates are in no set: an answer never holds them.
std::vector<CodeRange> without_unwritable(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> kept;
  const auto keep = [&kept](std::uint32_t first, std::uint32_t last) {
    if (first <= last) kept.push_back({first, last});
  };
  for (const CodeRange& range : ranges) {
    const std::uint32_t first = std::max(range.first, 1U);
    const std::uint32_t last = std::min(range.last, kMaxCodePoint);
    keep(first, std::min(last, 0xD7FFU));
    keep(std::max(first, 0xE000U), last);
  }
  return kept;
}

std::vector<CodeRange> merged(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<CodeRange> apart;
  for (const CodeRange& range : ranges) {
    if (!apart.empty() && range.first <= apart.back().last + 1) {
      apart.back().last = std::max(apart.back().last, range.last);
    } else {
      apart.push_back(range);
    }
  }
  return apart;
}

bool contains(const CharacterSet& set, std::uint32_t code) {
  const auto behind = std::upper_bound(set.begin(), set.end(), code,
                                       [](auto c, const CodeRange& r) { return c < r.first; });
  return behind != set.begin() && code <= std::prev(behind)->last;
}

}  // namespace

CharacterSet make_character_set(std::vector<CodeRange> ranges, bool negated) {
  ranges = merged(std::move(ranges));
  if (negated) {
    std::vector<CodeRange> others;
    std::uint32_t next = 0;
    for (const CodeRange& range : ranges) {
      if (range.first > next) others.push_back({next, range.first - 1});
      next = range.last + 1;
    }
    if (next <= kMaxCodePoint) others.push_back({next, kMaxCodePoint});
    ranges = std::move(others);
  }
  return without_unwritable(ranges);
}

Result<Grammar> Grammar::create(const GrammarSource& source) {
  for (const GrammarRule& rule : source.rules) {
    if (!rule.is_defined) return invalid_argument("rule '" + rule.name + "' is not defined");
  }
  if (const std::optional<std::uint32_t> rule = find_left_recursion(source)) {
    return invalid_argument("rule '" + source.rules[*rule].name +
                            "' is left-recursive: it can begin with itself");
  }
  const std::vector<bool> completable = find_completable_rules(source);
  if (!completable[source.root]) {
    return invalid_argument("no text is complete: rule '" + source.rules[source.root].name +
                            "' always needs itself again");
  }
  Grammar grammar;
  GRAFT_RETURN_IF_ERROR(grammar.divide_characters(source.sets));
  grammar.flatten(source, completable);
  return grammar;
}

void Grammar::flatten(const GrammarSource& source, const std::vector<bool>& completable) {
  const auto is_endless = [&](const GrammarSymbol& symbol) {
    return symbol.kind == GrammarSymbol::kRule && !completable[symbol.value];
  };
  root_ = source.root;
  for (const GrammarRule& rule : source.rules) {
    for (const auto& alternative : rule.alternatives) {
      if (std::any_of(alternative.begin(), alternative.end(), is_endless)) continue;
      alternatives_.push_back(static_cast<std::uint32_t>(symbols_.size()));
      symbols_.insert(symbols_.end(), alternative.begin(), alternative.end());
      symbols_.push_back({});
    }
    rule_begin_.push_back(static_cast<std::uint32_t>(alternatives_.size()));
  }
}

std::span<const std::uint32_t> Grammar::alternatives(std::uint32_t rule) const {
  const std::uint32_t begin = rule_begin_[rule];
  return {alternatives_.data() + begin, rule_begin_[rule + 1] - begin};
}

// Every border of a range begins a piece of the code points; pieces that are in the same sets are
// one class.
Status Grammar::divide_characters(const std::vector<CharacterSet>& sets) {
  sets_ = sets;
  class_begin_ = {0};
  for (const CharacterSet& set : sets_) {
    for (const CodeRange& range : set) {
      class_begin_.push_back(range.first);
      class_begin_.push_back(range.last + 1);
    }
  }
  std::sort(class_begin_.begin(), class_begin_.end());
  class_begin_.erase(std::unique(class_begin_.begin(), class_begin_.end()), class_begin_.end());
  if (class_begin_.size() * std::max<std::size_t>(sets_.size(), 1) > kMaxMembership) {
    return invalid_argument("too many different characters and character sets");
  }
  std::map<std::vector<bool>, std::uint32_t> classes;
  for (const std::uint32_t code : class_begin_) {
    std::vector<bool> in_set(sets_.size());
    for (std::size_t i = 0; i < sets_.size(); ++i) in_set[i] = contains(sets_[i], code);
    const auto next = static_cast<std::uint32_t>(classes.size());
    piece_class_.push_back(classes.emplace(std::move(in_set), next).first->second);
  }
  n_classes_ = static_cast<std::uint32_t>(classes.size());
  membership_.resize(sets_.size() * n_classes_);
  for (const auto& [in_set, character_class] : classes) {
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      membership_[i * n_classes_ + character_class] = in_set[i];
    }
  }
  for (std::uint32_t code = 0; code < kAscii; ++code) ascii_class_.push_back(find_class(code));
  return {};
}

std::uint32_t Grammar::find_class(std::uint32_t code) const {
  const auto behind = std::upper_bound(class_begin_.begin(), class_begin_.end(), code);
  return piece_class_[static_cast<std::size_t>(behind - class_begin_.begin()) - 1];
}

bool Grammar::set_overlaps(std::uint32_t set, std::uint32_t first, std::uint32_t last) const {
  const CharacterSet& ranges = sets_[set];
  const auto found = std::lower_bound(ranges.begin(), ranges.end(), first,
                                      [](const CodeRange& r, auto code) { return r.last < code; });
  return found != ranges.end() && found->first <= last;
}

}  // namespace graft
