// Checks of a grammar's rules before it is compiled. Pure functions, linear in the grammar's size;
// any thread. Requires, for both: every rule is defined.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/grammar.h"

namespace graft {

// A rule that can begin with itself and grows thereby, so that looking for the first character
// would never end. A rule that begins with itself behind nothing and has nothing behind it ("x*" of
// an x that may be empty) does no harm and is allowed.
std::optional<std::uint32_t> find_left_recursion(const GrammarSource& source);

// Per rule, whether it matches any text at all: one that always needs itself never ends.
std::vector<bool> find_completable_rules(const GrammarSource& source);

}  // namespace graft
