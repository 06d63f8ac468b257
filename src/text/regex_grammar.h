// regex_to_gbnf: a regular expression -> a GBNF rule for the texts it matches. A translator of our
// own, over untrusted text; recursion is bounded by kMaxConstraintDepth. Pure function, any thread.
//
// Understood: literals, . (all but line ends), [classes], escapes \d \D \w \W \s \S (ASCII) \n \r
// \t \f \v \xHH \uHHHH and of punctuation, (groups) that capture or not or have names, |, * + ?
// {m} {m,} {,n} {m,n}, and ^ and $ at the ends of the expression's outermost alternatives. A lazy
// quantifier is as its greedy twin: both match the same whole texts. Everything else (look-around,
// back-references, \b, flags, ...) is kNotSupported and named.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace graft {

enum class RegexUse {
  kWholeAnswer,  // the expression matches all of the text
  kJsonString,   // JSON schema's `pattern`: it matches somewhere in a string, written as JSON
};

// "NAME ::= ...\n", complete in itself. Requires: `pattern` is UTF-8 without U+0000; `name` is a
// GBNF name.
Result<std::string> regex_to_gbnf(std::string_view pattern, RegexUse use, const std::string& name);

}  // namespace graft
