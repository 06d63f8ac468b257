#include "api/trace_context.h"

#include <algorithm>

namespace graft::api {
namespace {

// version-traceid-parentid-flags
constexpr std::size_t kTraceAt = 3;
constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kParentAt = kTraceAt + kTraceDigits + 1;
constexpr std::size_t kParentDigits = 16;
constexpr std::size_t kFlagsAt = kParentAt + kParentDigits + 1;
constexpr std::size_t kLength = kFlagsAt + 2;

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == '0'; });
}

}  // namespace

std::optional<std::string> trace_id_of(std::string_view traceparent) {
  if (traceparent.size() < kLength) return std::nullopt;
  const std::string_view version = traceparent.substr(0, 2);
  const std::string_view trace = traceparent.substr(kTraceAt, kTraceDigits);
  const std::string_view parent = traceparent.substr(kParentAt, kParentDigits);
  const std::string_view flags = traceparent.substr(kFlagsAt, 2);
  if (!is_hex(version) || version == "ff" || !is_hex(trace) || !is_hex(parent) || !is_hex(flags)) {
    return std::nullopt;
  }
  for (const std::size_t dash : {kTraceAt - 1, kParentAt - 1, kFlagsAt - 1}) {
    if (traceparent[dash] != '-') return std::nullopt;
  }
  if (is_zero(trace) || is_zero(parent)) return std::nullopt;
  if (traceparent.size() > kLength && (version == "00" || traceparent[kLength] != '-')) {
    return std::nullopt;
  }
  return std::string(trace);
}

}  // namespace graft::api
