#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace graft {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "graft: internal check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace graft
