// GRAFT_CHECK: aborts with a message when an invariant of our own code is broken. It must be
// unreachable from any outside input; expected failures travel as Result (base/result.h).
#pragma once

namespace graft {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace graft

#define GRAFT_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::graft::check_failed(#condition, __FILE__, __LINE__))
