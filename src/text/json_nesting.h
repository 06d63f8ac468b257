// is_nested_deeper: how deep JSON text is nested, before it meets a parser that recurses. Looks at
// structure only, so any text will do. Pure function, any thread.
#pragma once

#include <string_view>

namespace graft {

bool is_nested_deeper(std::string_view json, int limit);

}  // namespace graft
