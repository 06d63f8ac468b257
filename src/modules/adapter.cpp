#include "modules/adapter.h"

namespace graft {

std::uint64_t Adapter::factor_bytes() const {
  std::uint64_t total = 0;
  for (const LoraTerm& term : terms) {
    total += term.a.bytes.size() + term.b.bytes.size() + term.bias.size() * sizeof(float);
  }
  return total;
}

}  // namespace graft
