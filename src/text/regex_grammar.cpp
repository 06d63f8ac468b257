#include "text/regex_grammar.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/check.h"
#include "text/gbnf.h"
#include "text/grammar.h"
#include "text/utf8.h"

namespace graft {
namespace {

using Ranges = std::vector<CodeRange>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

void append_escaped(std::string& out, std::uint32_t code) {
  const bool plain = code < 0x80 && (is_letter(static_cast<char>(code)) ||
                                     is_digit(static_cast<char>(code)) || code == ' ');
  if (plain) {
    out += static_cast<char>(code);
    return;
  }
  char text[16];
  const char* format = code < 0x100 ? "\\x%02X" : code < 0x10000 ? "\\u%04X" : "\\U%08X";
  std::snprintf(text, sizeof text, format, code);
  out += text;
}

std::string gbnf_class(const CharacterSet& set) {
  std::string text = "[";
  for (const CodeRange& range : set) {
    append_escaped(text, range.first);
    if (range.last == range.first) continue;
    text += '-';
    append_escaped(text, range.last);
  }
  return text + "]";
}

// How JSON writes a character that may not stand in a string as it is; as a GBNF literal.
std::string json_escape(std::uint32_t code) {
  switch (code) {
    case '"': return R"("\\\"")";
    case '\\': return R"("\\\\")";
    case '\n': return R"("\\n")";
    case '\r': return R"("\\r")";
    case '\t': return R"("\\t")";
    case '\b': return R"("\\b")";
    case '\f': return R"("\\f")";
    default: break;
  }
  char text[16];
  std::snprintf(text, sizeof text, R"("\\u%04x")", code);
  return text;
}

bool needs_escape(std::uint32_t code) { return code < 0x20 || code == '"' || code == '\\'; }

std::string gbnf_json_class(const CharacterSet& set) {
  Ranges as_they_are;
  std::string escapes;
  for (const CodeRange& range : set) {
    std::uint32_t first = range.first;
    for (std::uint32_t code = range.first; code <= std::min(range.last, 0x5CU); ++code) {
      if (!needs_escape(code)) continue;
      if (code > first) as_they_are.push_back({first, code - 1});
      first = code + 1;
      escapes += " | " + json_escape(code);
    }
    if (first <= range.last) as_they_are.push_back({first, range.last});
  }
  if (escapes.empty()) return gbnf_class(as_they_are);
  const std::string plain = as_they_are.empty() ? "" : gbnf_class(as_they_are);
  return "(" + (plain.empty() ? escapes.substr(3) : plain + escapes) + ")";
}

// The characters of \d, \w, \s; nothing for other letters.
Ranges class_escape(char letter) {
  switch (letter) {
    case 'd': return {{'0', '9'}};
    case 'w': return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    case 's': return {{'\t', '\r'}, {' ', ' '}};
    default: return {};
  }
}

class RegexReader {
 public:
  RegexReader(std::string_view pattern, RegexUse use) : pattern_(pattern), use_(use) {}

  Result<std::string> run() {
    GRAFT_RETURN_IF_ERROR(read_alternatives(0));
    if (at_ < pattern_.size()) return wrong("a ')' closes nothing");
    return std::move(out_);
  }

 private:
  std::string place() const {
    return "byte " + std::to_string(at_) + " of the regular expression: ";
  }
  Error wrong(const std::string& what) const { return invalid_argument(place() + what); }
  Error unsupported(const std::string& what) const {
    return not_supported(place() + what + " is not supported");
  }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool at_end() const { return at_ >= pattern_.size(); }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  void emit(const Ranges& ranges, bool negated) {
    const CharacterSet set = make_character_set(ranges, negated);
    out_ += use_ == RegexUse::kJsonString ? gbnf_json_class(set) : gbnf_class(set);
  }
  // What JSON schema lets stand before and behind an expression without anchors.
  void emit_anything() {
    emit({}, true);
    out_ += "* ";
  }

  Status read_alternatives(int depth) {
    if (depth > kMaxConstraintDepth) {
      return wrong("groups are nested deeper than " + std::to_string(kMaxConstraintDepth));
    }
    const bool searches = depth == 0 && use_ == RegexUse::kJsonString;
    do {
      const bool from_begin = depth == 0 && take("^");
      if (searches && !from_begin) emit_anything();
      bool to_end = false;
      GRAFT_RETURN_IF_ERROR(read_sequence(depth, to_end));
      if (searches && !to_end) emit_anything();
      if (peek() == '|') out_ += "| ";
    } while (take("|"));
    return {};
  }

  Status read_sequence(int depth, bool& to_end) {
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (peek() == '$' && depth == 0 && (at_ + 1 == pattern_.size() || peek(1) == '|')) {
        ++at_;
        to_end = true;
        return {};
      }
      GRAFT_RETURN_IF_ERROR(read_item(depth));
      GRAFT_RETURN_IF_ERROR(read_quantifier());
      out_ += ' ';
    }
    return {};
  }

  Status read_item(int depth) {
    const char c = peek();
    switch (c) {
      case '(': return read_group(depth);
      case '[': return read_class();
      case '\\': return read_escaped_item();
      case '.':
        ++at_;
        emit({{'\n', '\n'}, {'\r', '\r'}}, true);
        return {};
      case '^':
      case '$': return unsupported(std::string("'") + c + "' inside the expression");
      case '*':
      case '+':
      case '?': return wrong("there is nothing to repeat");
      case '{':
      case '}': return wrong(std::string("a literal '") + c + "' must be escaped");
      default: break;
    }
    GRAFT_ASSIGN_OR_RETURN(const std::uint32_t code, read_code_point());
    emit({{code, code}}, false);
    return {};
  }

  Result<std::uint32_t> read_code_point() {
    if (at_end()) return wrong("the expression ends too early");
    const auto decoded = decode_utf8(pattern_, at_);
    if (!decoded) return wrong("not UTF-8");
    at_ += decoded->n_bytes;
    return decoded->value;
  }

  Status read_group(int depth) {
    ++at_;
    if (peek() == '?') GRAFT_RETURN_IF_ERROR(read_group_kind());
    out_ += "( ";
    GRAFT_RETURN_IF_ERROR(read_alternatives(depth + 1));
    if (!take(")")) return wrong("a '(' is not closed");
    out_ += ')';
    return {};
  }

  // From the '?' behind the parenthesis.
  Status read_group_kind() {
    for (const char* around : {"?=", "?!", "?<=", "?<!"}) {
      if (take(around)) return unsupported("look-around");
    }
    if (take("?P=")) return unsupported("a back-reference");
    if (take("?>")) return unsupported("an atomic group");
    if (take("?:")) return {};
    if (!take("?P<") && !take("?<")) return unsupported("this kind of group (flags, conditions)");
    const std::size_t begin = at_;
    while (is_letter(peek()) || is_digit(peek()) || peek() == '_') ++at_;
    if (at_ == begin || !take(">")) return wrong("a group's name is not valid");
    return {};
  }

  Status read_escaped_item() {
    const char letter = peek(1);
    const bool negated = letter >= 'A' && letter <= 'Z';
    const Ranges ranges = class_escape(negated ? static_cast<char>(letter + 32) : letter);
    if (!ranges.empty()) {
      at_ += 2;
      emit(ranges, negated);
      return {};
    }
    GRAFT_ASSIGN_OR_RETURN(const std::uint32_t code, read_escaped_character());
    emit({{code, code}}, false);
    return {};
  }

  // From the backslash.
  Result<std::uint32_t> read_escaped_character() {
    const char c = peek(1);
    if (at_ + 1 >= pattern_.size()) return wrong("a backslash at the end");
    if (c == 'b' || c == 'B') return unsupported(std::string("\\") + c + " (a word boundary)");
    if (c >= '1' && c <= '9') return unsupported("a back-reference");
    if (c == 'k') return unsupported("a back-reference");
    if (c == 'p' || c == 'P') return unsupported("a Unicode property");
    at_ += 2;
    switch (c) {
      case 'n': return std::uint32_t{'\n'};
      case 'r': return std::uint32_t{'\r'};
      case 't': return std::uint32_t{'\t'};
      case 'f': return std::uint32_t{'\f'};
      case 'v': return std::uint32_t{'\v'};
      case 'x': return read_hex(2);
      case 'u': return read_hex(4);
      default: break;
    }
    at_ -= 2;
    if (is_letter(c) || is_digit(c)) return unsupported(std::string("the escape \\") + c);
    ++at_;
    return read_code_point();
  }

  Result<std::uint32_t> read_hex(int n_digits) {
    std::uint32_t value = 0;
    for (int i = 0; i < n_digits; ++i, ++at_) {
      const char c = peek();
      const bool is_hex = is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!is_hex) return wrong("expected " + std::to_string(n_digits) + " hexadecimal digits");
      value =
          value * 16 + static_cast<std::uint32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value == 0 || is_surrogate(value)) return wrong("no such character");
    return value;
  }

  Status read_class() {
    ++at_;
    const bool negated = take("^");
    Ranges ranges;
    for (bool is_first = true; is_first || peek() != ']'; is_first = false) {
      if (at_end()) return wrong("a '[' is not closed");
      GRAFT_RETURN_IF_ERROR(read_class_part(ranges));
    }
    ++at_;
    if (make_character_set(ranges, negated).empty()) {
      return wrong("a character class matches no character");
    }
    emit(ranges, negated);
    return {};
  }

  // One character, range or class escape inside [].
  Status read_class_part(Ranges& ranges) {
    if (peek() == '[' && (peek(1) == ':' || peek(1) == '.' || peek(1) == '=')) {
      return unsupported("a POSIX class");
    }
    const char letter = peek() == '\\' ? peek(1) : '\0';
    if (const Ranges escape = class_escape(letter); !escape.empty()) {
      at_ += 2;
      ranges.insert(ranges.end(), escape.begin(), escape.end());
      return {};
    }
    if (letter == 'D' || letter == 'W' || letter == 'S') {
      at_ += 2;
      const Ranges others = make_character_set(class_escape(static_cast<char>(letter + 32)), true);
      ranges.insert(ranges.end(), others.begin(), others.end());
      return {};
    }
    GRAFT_ASSIGN_OR_RETURN(const std::uint32_t first, read_class_character());
    std::uint32_t last = first;
    if (peek() == '-' && peek(1) != ']' && at_ + 1 < pattern_.size()) {
      ++at_;
      GRAFT_ASSIGN_OR_RETURN(last, read_class_character());
    }
    if (last < first) return wrong("a character range runs backwards");
    ranges.push_back({first, last});
    return {};
  }

  Result<std::uint32_t> read_class_character() {
    if (peek() != '\\') return read_code_point();
    if (peek(1) == 'b') {  // backspace, inside a class
      at_ += 2;
      return std::uint32_t{'\b'};
    }
    return read_escaped_character();
  }

  Status read_quantifier() {
    if (take("*")) {
      out_ += '*';
    } else if (take("+")) {
      out_ += '+';
    } else if (take("?")) {
      out_ += '?';
    } else if (peek() == '{') {
      GRAFT_RETURN_IF_ERROR(read_counts());
    } else {
      return {};
    }
    if (take("?")) return {};  // lazy
    if (peek() == '+') return unsupported("a possessive quantifier");
    if (peek() == '*' || peek() == '{') return wrong("a quantifier is repeated");
    return {};
  }

  Status read_counts() {
    const std::size_t end = pattern_.find('}', at_);
    const std::string_view counts =
        pattern_.substr(at_, end == std::string_view::npos ? end : end + 1 - at_);
    const bool is_valid = counts.size() > 2 && counts.back() == '}' &&
                          std::count(counts.begin(), counts.end(), ',') <= 1 && counts != "{,}" &&
                          std::all_of(counts.begin() + 1, counts.end() - 1,
                                      [](char c) { return is_digit(c) || c == ','; });
    if (!is_valid) return wrong("a '{' that begins no repetition must be escaped");
    // The grammar's own reader checks the numbers.
    out_ += counts[1] == ',' ? "{0" + std::string(counts.substr(1)) : std::string(counts);
    at_ += counts.size();
    return {};
  }

  const std::string_view pattern_;
  const RegexUse use_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> regex_to_gbnf(std::string_view pattern, RegexUse use, const std::string& name) {
  GRAFT_ASSIGN_OR_RETURN(const std::string body, RegexReader(pattern, use).run());
  if (use == RegexUse::kWholeAnswer) return name + " ::= " + body + "\n";
  return name + R"( ::= "\"" ( )" + body + R"( ) "\"")" + "\n";
}

}  // namespace graft
