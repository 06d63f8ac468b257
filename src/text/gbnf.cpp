#include "text/gbnf.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "text/utf8.h"

namespace graft {
namespace {

using Symbols = std::vector<GrammarSymbol>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c);
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

struct Repetition {
  unsigned least = 0;
  unsigned most = 0;
  bool endless = false;
};

class GbnfReader {
 public:
  GbnfReader(std::string_view text, const Vocabulary& vocabulary, const GbnfLimits& limits)
      : text_(text), vocabulary_(vocabulary), limits_(limits) {}

  Result<GrammarSource> run() {
    skip_space(true);
    while (at_ < text_.size()) GRAFT_RETURN_IF_ERROR(read_rule());
    const auto root = rules_.find("root");
    if (root == rules_.end()) return invalid_argument("the grammar has no rule 'root'");
    source_.root = root->second;
    return std::move(source_);
  }

 private:
  Error wrong(const std::string& what) const {
    return invalid_argument("byte " + std::to_string(at_) + " of the grammar: " + what);
  }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }

  void skip_space(bool with_lines) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size()) - 1;
      } else if (c != ' ' && c != '\t' && !(with_lines && (c == '\r' || c == '\n'))) {
        return;
      }
    }
  }

  std::string read_name() {
    const std::size_t begin = at_;
    while (is_name(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::uint32_t new_rule(const std::string& name) {
    source_.rules.push_back({name, true, {}});
    return static_cast<std::uint32_t>(source_.rules.size()) - 1;
  }

  std::uint32_t rule_named(const std::string& name) {
    const auto [entry, is_new] =
        rules_.emplace(name, static_cast<std::uint32_t>(source_.rules.size()));
    if (is_new) source_.rules.push_back({name, false, {}});
    return entry->second;
  }

  GrammarSymbol characters(CharacterSet set) {
    const auto next = static_cast<std::uint32_t>(source_.sets.size());
    const auto [entry, is_new] = sets_.emplace(std::move(set), next);
    if (is_new) source_.sets.push_back(entry->first);
    return {GrammarSymbol::kCharacters, entry->second};
  }

  Status count(std::size_t n_symbols) {
    n_symbols_ += n_symbols;
    if (n_symbols_ <= kMaxGrammarSymbols) return {};
    return invalid_argument("the grammar has more than " + std::to_string(kMaxGrammarSymbols) +
                            " symbols, repetitions written out");
  }

  Status read_rule() {
    const std::string name = read_name();
    if (name.empty()) return wrong("expected the name of a rule");
    const std::uint32_t rule = rule_named(name);
    if (source_.rules[rule].is_defined) return wrong("rule '" + name + "' is defined twice");
    skip_space(false);
    if (text_.substr(at_, 3) != "::=") return wrong("expected '::=' behind '" + name + "'");
    at_ += 3;
    skip_space(true);
    source_.rules[rule].is_defined = true;
    GRAFT_RETURN_IF_ERROR(read_alternatives(rule, 0));
    if (at_ < text_.size() && peek() != '\r' && peek() != '\n') {
      return wrong("expected the end of rule '" + name + "'");
    }
    skip_space(true);
    return {};
  }

  Status read_alternatives(std::uint32_t rule, int depth) {
    if (depth > limits_.max_depth) {
      return wrong("groups are nested deeper than " + std::to_string(limits_.max_depth));
    }
    do {
      skip_space(true);
      Symbols symbols;
      GRAFT_RETURN_IF_ERROR(read_sequence(rule, depth, symbols));
      source_.rules[rule].alternatives.push_back(std::move(symbols));
    } while (take('|'));
    return {};
  }

  Status read_sequence(std::uint32_t rule, int depth, Symbols& symbols) {
    std::size_t last = 0;  // where the last item begins
    while (at_ < text_.size()) {
      Repetition repetition;
      const std::size_t begin = at_;
      const std::size_t n_before = symbols.size();
      GRAFT_RETURN_IF_ERROR(read_item(rule, depth, symbols));
      if (at_ > begin) {
        last = n_before;
        GRAFT_RETURN_IF_ERROR(count(symbols.size() - n_before));
      } else {
        GRAFT_RETURN_IF_ERROR(read_repetition(repetition, depth > 0));
        if (at_ == begin) return {};
        if (last == symbols.size()) return wrong("there is nothing to repeat");
        GRAFT_RETURN_IF_ERROR(repeat(rule, repetition, last, symbols));
      }
      skip_space(depth > 0);
    }
    return {};
  }

  // Appends one item; takes nothing if there is none.
  Status read_item(std::uint32_t rule, int depth, Symbols& symbols) {
    const char c = peek();
    if (c == '"') return read_literal(symbols);
    if (c == '[') return read_class(symbols);
    if (c == '<' || c == '!') return read_token(symbols);
    if (c == '(') return read_group(rule, depth, symbols);
    if (take('.')) {
      symbols.push_back(characters(make_character_set({}, true)));
    } else if (is_name(c)) {
      symbols.push_back({GrammarSymbol::kRule, rule_named(read_name())});
    }
    return {};
  }

  Status read_literal(Symbols& symbols) {
    ++at_;
    while (!take('"')) {
      GRAFT_ASSIGN_OR_RETURN(const std::uint32_t code, read_character());
      if (code == 0) return wrong("a literal holds the character U+0000");
      symbols.push_back(characters(make_character_set({{code, code}}, false)));
    }
    return {};
  }

  Status read_class(Symbols& symbols) {
    ++at_;
    const bool negated = take('^');
    std::vector<CodeRange> ranges;
    while (!take(']')) {
      GRAFT_ASSIGN_OR_RETURN(const std::uint32_t first, read_character());
      std::uint32_t last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        GRAFT_ASSIGN_OR_RETURN(last, read_character());
      }
      if (last < first) return wrong("a character range runs backwards");
      ranges.push_back({first, last});
    }
    CharacterSet set = make_character_set(std::move(ranges), negated);
    if (set.empty()) return wrong("a character class matches no character");
    symbols.push_back(characters(std::move(set)));
    return {};
  }

  Result<std::uint32_t> read_character() {
    if (at_ >= text_.size()) return wrong("the text ends inside a literal or class");
    if (peek() == '\\') return read_escape();
    const auto decoded = decode_utf8(text_, at_);
    if (!decoded) return wrong("not UTF-8");
    at_ += decoded->n_bytes;
    return decoded->value;
  }

  Result<std::uint32_t> read_escape() {
    const char c = peek(1);
    at_ += 2;
    switch (c) {
      case 'x': return read_hex(2);
      case 'u': return read_hex(4);
      case 'U': return read_hex(8);
      case 't': return std::uint32_t{'\t'};
      case 'r': return std::uint32_t{'\r'};
      case 'n': return std::uint32_t{'\n'};
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-': return static_cast<std::uint32_t>(c);
      default: at_ = std::min(at_, text_.size()); return wrong("unknown escape");
    }
  }

  Result<std::uint32_t> read_hex(int n_digits) {
    std::uint32_t value = 0;
    for (int i = 0; i < n_digits; ++i, ++at_) {
      const int digit = hex_digit(peek());
      if (digit < 0) return wrong("expected " + std::to_string(n_digits) + " hexadecimal digits");
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    if (value > kMaxCodePoint || is_surrogate(value)) return wrong("no such character");
    return value;
  }

  Status read_token(Symbols& symbols) {
    const auto kind = take('!') ? GrammarSymbol::kOtherToken : GrammarSymbol::kToken;
    const std::size_t end = text_.find('>', at_);
    if (peek() != '<' || end == std::string_view::npos) return wrong("expected a token: <...>");
    const std::string_view name = text_.substr(at_, end + 1 - at_);
    GRAFT_ASSIGN_OR_RETURN(const TokenId token, find_token(name));
    symbols.push_back({kind, static_cast<std::uint32_t>(token)});
    at_ = end + 1;
    return {};
  }

  Result<TokenId> find_token(std::string_view name) const {
    if (name.starts_with("<[") && name.ends_with("]>")) {
      std::int64_t id = 0;
      const std::string_view digits = name.substr(2, name.size() - 4);
      if (digits.empty() || digits.size() > 9 ||
          !std::all_of(digits.begin(), digits.end(), is_digit)) {
        return wrong("expected a token's number: <[...]>");
      }
      for (const char digit : digits) id = id * 10 + (digit - '0');
      if (id >= vocabulary_.size()) return wrong("the vocabulary has no such token");
      return static_cast<TokenId>(id);
    }
    GRAFT_ASSIGN_OR_RETURN(const auto tokens, vocabulary_.tokenize(name, {.add_special = false,
                                                                          .parse_special = true}));
    if (tokens.size() != 1) return wrong("'" + std::string(name) + "' is not one token");
    return tokens.front();
  }

  Status read_group(std::uint32_t rule, int depth, Symbols& symbols) {
    ++at_;
    const std::uint32_t group = new_rule(source_.rules[rule].name);
    GRAFT_RETURN_IF_ERROR(read_alternatives(group, depth + 1));
    if (!take(')')) return wrong("expected ')'");
    symbols.push_back({GrammarSymbol::kRule, group});
    return {};
  }

  // Takes nothing if there is none.
  Status read_repetition(Repetition& repetition, bool with_lines) {
    if (take('{')) return read_counts(repetition, with_lines);
    if (take('*')) repetition = {0, 0, true};
    if (take('+')) repetition = {1, 0, true};
    if (take('?')) repetition = {0, 1, false};
    return {};
  }

  Status read_counts(Repetition& repetition, bool with_lines) {
    skip_space(with_lines);
    GRAFT_ASSIGN_OR_RETURN(repetition.least, read_count());
    repetition.most = repetition.least;
    skip_space(with_lines);
    if (take(',')) {
      skip_space(with_lines);
      repetition.endless = !is_digit(peek());
      if (!repetition.endless) {
        GRAFT_ASSIGN_OR_RETURN(repetition.most, read_count());
      }
      skip_space(with_lines);
    }
    if (!take('}')) return wrong("expected '}'");
    if (!repetition.endless && repetition.most < repetition.least) {
      return wrong("a repetition's bounds are the wrong way round");
    }
    return {};
  }

  Result<unsigned> read_count() {
    if (!is_digit(peek())) return wrong("expected a number of repetitions");
    unsigned value = 0;
    for (; is_digit(peek()); ++at_) {
      value = value * 10 + static_cast<unsigned>(peek() - '0');
      if (value > kMaxRepetitions) {
        return wrong("more than " + std::to_string(kMaxRepetitions) + " repetitions");
      }
    }
    return value;
  }

  // Replaces the item from `first` on by its repetition:
  //   x{m,n} = x ... x O(n-m)  with  O(k) ::= x O(k-1) |      and O(0) nothing
  //   x{m,}  = x ... x R       with  R ::= x R |
  Status repeat(std::uint32_t rule, const Repetition& repetition, std::size_t first,
                Symbols& symbols) {
    const std::string name = source_.rules[rule].name;
    const unsigned n_optional = repetition.endless ? 1 : repetition.most - repetition.least;
    GRAFT_RETURN_IF_ERROR(count(std::size_t{repetition.least} + std::size_t{3} * n_optional));
    GrammarSymbol item = symbols[first];
    if (symbols.size() - first > 1) {
      item = {GrammarSymbol::kRule, new_rule(name)};
      source_.rules[item.value].alternatives.emplace_back(
          symbols.begin() + static_cast<std::ptrdiff_t>(first), symbols.end());
    }
    symbols.resize(first);
    symbols.insert(symbols.end(), repetition.least, item);
    if (repetition.endless) {
      const GrammarSymbol more{GrammarSymbol::kRule, new_rule(name)};
      source_.rules[more.value].alternatives = {{item, more}, {}};
      symbols.push_back(more);
      return {};
    }
    Symbols tail;
    for (unsigned i = 0; i < n_optional; ++i) {
      const GrammarSymbol optional{GrammarSymbol::kRule, new_rule(name)};
      tail.insert(tail.begin(), item);
      source_.rules[optional.value].alternatives = {std::move(tail), {}};
      tail = {optional};
    }
    symbols.insert(symbols.end(), tail.begin(), tail.end());
    return {};
  }

  const std::string_view text_;
  const Vocabulary& vocabulary_;
  const GbnfLimits limits_;
  std::size_t at_ = 0;
  std::size_t n_symbols_ = 0;
  GrammarSource source_;
  std::unordered_map<std::string, std::uint32_t> rules_;
  std::map<CharacterSet, std::uint32_t> sets_;
};

}  // namespace

Result<GrammarSource> parse_gbnf(std::string_view text, const Vocabulary& vocabulary,
                                 const GbnfLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return invalid_argument("the grammar has " + std::to_string(text.size()) +
                            " bytes; the limit is " + std::to_string(limits.max_bytes));
  }
  if (text.find('\0') != std::string_view::npos) {
    return invalid_argument("the grammar holds the character U+0000");
  }
  return GbnfReader(text, vocabulary, limits).run();
}

std::string gbnf_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    switch (c) {
      case '\n': literal += "\\n"; break;
      case '\r': literal += "\\r"; break;
      case '"':
      case '\\': literal += '\\'; [[fallthrough]];
      default: literal += c;
    }
  }
  return literal + '"';
}

}  // namespace graft
