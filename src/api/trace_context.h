// The W3C trace context that a client may send: the header `traceparent`. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace graft::api {

// The trace id, 32 hex digits, of a valid `traceparent`; nothing for any other text. Versions that
// are not yet known are read as far as the known one goes, as the standard asks.
std::optional<std::string> trace_id_of(std::string_view traceparent);

}  // namespace graft::api
