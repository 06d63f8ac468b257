// Texts joined to one key.
#pragma once

#include <string>
#include <string_view>

namespace graft {

// Appends `part` with its length in front, so that no two texts can run into each other, whatever
// bytes they have.
inline void append_sized(std::string& key, std::string_view part) {
  key += std::to_string(part.size()) + ':';
  key += part;
}

}  // namespace graft
