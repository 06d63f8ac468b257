// Where a module may act: an operation on a named base weight. The same tensor can be two sites:
// a tied embedding is read by GET_ROWS (lookup) and by MUL_MAT (output head).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace graft {

enum class SiteOp : std::uint8_t {
  kMatMul,    // y = W x, rows are tokens
  kMatMulId,  // y_e = W_e x for the experts chosen per token
  kGetRows,   // y = row of a table, chosen by token id
};

const char* to_string(SiteOp op);

struct SiteKey {
  SiteOp op = SiteOp::kMatMul;
  std::string tensor;  // GGUF name, e.g. "blk.3.attn_q.weight"

  friend bool operator==(const SiteKey&, const SiteKey&) = default;
};

struct SiteKeyHash {
  std::size_t operator()(const SiteKey& key) const {
    return std::hash<std::string>()(key.tensor) * 31 + static_cast<std::size_t>(key.op);
  }
};

}  // namespace graft
