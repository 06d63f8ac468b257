// slice_json: the text of one member of a JSON object, as the client wrote it: a parsed object does
// not keep the order of its keys, and for a schema that order matters. Pure function, any thread.
#pragma once

#include <initializer_list>
#include <string_view>

namespace graft::api {

// The value at `path`, object in object; of equal keys the last, as the parser takes it. Empty if
// it is not there or a key on the way is written with escapes. Requires: `json` is valid JSON.
std::string_view slice_json(std::string_view json, std::initializer_list<std::string_view> path);

}  // namespace graft::api
