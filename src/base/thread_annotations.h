// Clang's thread-safety attributes; they expand to nothing elsewhere.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#if defined(__clang__)
#define GRAFT_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define GRAFT_THREAD_ATTRIBUTE(x)
#endif

#define GRAFT_CAPABILITY(x) GRAFT_THREAD_ATTRIBUTE(capability(x))
#define GRAFT_SCOPED_CAPABILITY GRAFT_THREAD_ATTRIBUTE(scoped_lockable)
#define GRAFT_GUARDED_BY(x) GRAFT_THREAD_ATTRIBUTE(guarded_by(x))
#define GRAFT_REQUIRES(...) GRAFT_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define GRAFT_ACQUIRE(...) GRAFT_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define GRAFT_RELEASE(...) GRAFT_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define GRAFT_EXCLUDES(...) GRAFT_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define GRAFT_ASSERT_CAPABILITY(x) GRAFT_THREAD_ATTRIBUTE(assert_capability(x))
#define GRAFT_NO_THREAD_SAFETY_ANALYSIS GRAFT_THREAD_ATTRIBUTE(no_thread_safety_analysis)
