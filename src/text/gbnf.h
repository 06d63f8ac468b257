// parse_gbnf: grammar text in llama.cpp's GBNF notation -> GrammarSource. Reads untrusted text
// under limits; recursion is bounded by max_depth. Pure function, any thread.
//
//   root ::= "yes" | "no" [.!]{0,3}      literal, character class, alternatives, * + ? {m,n}
//   item ::= ( "-" text "\n" )+          groups; a rule may be used before it is defined
//   think ::= <think> !<[2]> .           a token by text or number, any other token, any character
//
// A rule ends with its line; inside groups and behind ::= and | lines may go on. '#' starts a
// comment. Unlike llama.cpp it refuses what cannot be meant: a rule defined twice, an empty class,
// more than kMaxRepetitions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/grammar.h"
#include "text/vocabulary.h"

namespace graft {

inline constexpr std::size_t kMaxConstraintBytes = std::size_t{64} << 10;
inline constexpr int kMaxConstraintDepth = 64;
inline constexpr unsigned kMaxRepetitions = 2000;
inline constexpr std::size_t kMaxGrammarSymbols = std::size_t{1} << 17;

struct GbnfLimits {
  std::size_t max_bytes = kMaxConstraintBytes;
  int max_depth = kMaxConstraintDepth;  // of groups
};

// kInvalidArgument says what is wrong and at which byte. The rule named "root" is the root.
Result<GrammarSource> parse_gbnf(std::string_view text, const Vocabulary& vocabulary,
                                 const GbnfLimits& limits);

// `text` as a GBNF literal, quotes included.
std::string gbnf_literal(std::string_view text);

}  // namespace graft
