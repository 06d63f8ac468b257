// Grammar: what a constrained answer may look like, as rules over characters and tokens. Compiled
// from a GrammarSource: checked (undefined rules, left recursion), rid of alternatives that can
// never be completed, flattened, and with the code points divided into classes that no character
// set tells apart. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/request.h"

namespace graft {

struct CodeRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;  // included
  bool operator==(const CodeRange&) const = default;
  auto operator<=>(const CodeRange&) const = default;
};
using CharacterSet = std::vector<CodeRange>;  // ascending, apart from each other, not empty

// The ranges in any order -> a CharacterSet; `negated`: all other characters.
CharacterSet make_character_set(std::vector<CodeRange> ranges, bool negated);

struct GrammarSymbol {
  enum Kind : std::uint8_t {
    kCharacters,  // one character of set `value`
    kToken,       // exactly token `value`
    kOtherToken,  // one token that is not `value`
    kRule,        // what rule `value` says
    kEnd,         // of an alternative; compiled grammars only
  };
  Kind kind = kEnd;
  std::uint32_t value = 0;
};

struct GrammarRule {
  std::string name;
  bool is_defined = false;
  std::vector<std::vector<GrammarSymbol>> alternatives;  // any one of them; symbols in a row
};

struct GrammarSource {
  std::vector<GrammarRule> rules;
  std::vector<CharacterSet> sets;
  std::uint32_t root = 0;
};

class Grammar {
 public:
  // kInvalidArgument: an undefined rule, left recursion, more character sets than can be handled.
  // Requires: symbols refer to rules and sets that exist.
  static Result<Grammar> create(const GrammarSource& source);

  const GrammarSymbol& symbol(std::uint32_t position) const { return symbols_[position]; }
  // Where the alternatives of a rule begin; each goes on to its kEnd.
  std::span<const std::uint32_t> alternatives(std::uint32_t rule) const;
  std::uint32_t root() const { return root_; }

  std::uint32_t n_classes() const { return n_classes_; }
  std::uint32_t class_of(std::uint32_t code) const {
    return code < kAscii ? ascii_class_[code] : find_class(code);
  }
  bool set_has_class(std::uint32_t set, std::uint32_t character_class) const {
    return membership_[std::size_t{set} * n_classes_ + character_class];
  }
  // Whether the set has a character from `first` to `last`.
  bool set_overlaps(std::uint32_t set, std::uint32_t first, std::uint32_t last) const;

 private:
  static constexpr std::uint32_t kAscii = 128;

  Grammar() = default;
  void flatten(const GrammarSource& source, const std::vector<bool>& completable);
  Status divide_characters(const std::vector<CharacterSet>& sets);
  std::uint32_t find_class(std::uint32_t code) const;

  std::vector<GrammarSymbol> symbols_;
  std::vector<std::uint32_t> alternatives_;      // positions in symbols_
  std::vector<std::uint32_t> rule_begin_ = {0};  // rule -> index in alternatives_, one more at end
  std::uint32_t root_ = 0;

  std::vector<CharacterSet> sets_;
  std::vector<std::uint32_t> class_begin_;  // ascending first code points of the classes' pieces
  std::vector<std::uint32_t> piece_class_;  // per piece: its class
  std::vector<std::uint32_t> ascii_class_;
  std::uint32_t n_classes_ = 0;
  std::vector<bool> membership_;  // [set][class]
};

}  // namespace graft
