// make_constraint_grammar: any kind of constraint -> grammar rules, under the limits of gbnf.h and
// the other readers. Pure function over untrusted text; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/constraint_source.h"
#include "text/grammar.h"
#include "text/vocabulary.h"

namespace graft {

inline constexpr std::size_t kMaxChoices = 1000;

struct ConstraintGrammar {
  GrammarSource rules;
  std::vector<std::string> ignored_keywords;  // of a lenient schema
};

Result<ConstraintGrammar> make_constraint_grammar(const ConstraintSource& source,
                                                  const Vocabulary& vocabulary);

}  // namespace graft
