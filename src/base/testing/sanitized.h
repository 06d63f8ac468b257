// For tests: what a sanitizer changes. It is slow, and its allocator does not return freed memory
// at once, so resident memory says nothing.
#pragma once

namespace graft {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A limit in time that is meant for a plain build is multiplied with this.
inline constexpr int kSlowness = kSanitized ? 20 : 1;

}  // namespace graft
