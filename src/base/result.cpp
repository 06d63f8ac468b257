#include "base/result.h"

namespace graft {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kNotFound: return "not found";
    case ErrorCode::kNotSupported: return "not supported";
    case ErrorCode::kPermissionDenied: return "permission denied";
    case ErrorCode::kResourceExhausted: return "resource exhausted";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kDataCorrupt: return "corrupt data";
    case ErrorCode::kInternal: return "internal error";
  }
  return "unknown error";
}

}  // namespace graft
