// near_names(): which known names a mistyped one may have meant. Pure, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace graft {

// Smallest number of single-character insertions, deletions and substitutions between the two
// (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b);

// At most three of `known`, nearest first: those within a third of the length of `name` (at least
// two edits), and those that begin with it. Overlong names have no near ones.
std::vector<std::string> near_names(std::string_view name, const std::vector<std::string>& known);

}  // namespace graft
