#include "modules/site.h"

namespace graft {

const char* to_string(SiteOp op) {
  switch (op) {
    case SiteOp::kMatMul: return "MUL_MAT";
    case SiteOp::kMatMulId: return "MUL_MAT_ID";
    case SiteOp::kGetRows: return "GET_ROWS";
  }
  return "unknown";
}

}  // namespace graft
