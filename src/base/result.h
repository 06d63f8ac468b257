// Result<T> and Status: how one folder tells another that something expected went wrong.
//
// Error codes are a closed list; api/ alone maps them to HTTP statuses. The message names the thing
// and the limit, never our code. Values may be move-only. Shaped like std::expected (C++23), so
// that it can be replaced by it later. Thread-compatible: no hidden state.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace graft {

enum class ErrorCode {
  kInvalidArgument,    // the request, flag or file content is wrong
  kNotFound,           // an unknown module, model, route or file
  kNotSupported,       // recognised, but this build or model cannot do it
  kPermissionDenied,   // the caller may not do this
  kResourceExhausted,  // no room now: queue, memory, limit
  kUnavailable,        // loading, draining or stopped
  kCancelled,          // the caller went away
  kDataCorrupt,        // bytes that contradict themselves
  kInternal,           // the engine failed; the request is lost, the process goes on
};

const char* to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string param;  // request field at fault, for API errors; may be empty
};

template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  // Implicit, so that functions return a value or an Error as it is.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // Requires: has_value().
  T& value() & {
    GRAFT_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    GRAFT_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    GRAFT_CHECK(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Requires: !has_value().
  const Error& error() const& {
    GRAFT_CHECK(!has_value());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    GRAFT_CHECK(!has_value());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Status(Error error) : error_(std::move(error)), ok_(false) {}

  bool has_value() const { return ok_; }
  explicit operator bool() const { return ok_; }

  // Requires: !has_value().
  const Error& error() const& {
    GRAFT_CHECK(!ok_);
    return error_;
  }
  Error&& error() && {
    GRAFT_CHECK(!ok_);
    return std::move(error_);
  }

 private:
  Error error_;
  bool ok_ = true;
};

// Shorthands that keep call sites on one line.
inline Error invalid_argument(std::string message, std::string param = {}) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(param)};
}
inline Error not_supported(std::string message) {
  return {ErrorCode::kNotSupported, std::move(message), {}};
}
inline Error data_corrupt(std::string message) {
  return {ErrorCode::kDataCorrupt, std::move(message), {}};
}
inline Error not_found(std::string message) {
  return {ErrorCode::kNotFound, std::move(message), {}};
}
inline Error internal_error(std::string message) {
  return {ErrorCode::kInternal, std::move(message), {}};
}

}  // namespace graft

#define GRAFT_CONCAT_INNER(a, b) a##b
#define GRAFT_CONCAT(a, b) GRAFT_CONCAT_INNER(a, b)

// Leaves the function with the error of `expression`, a Status or Result.
#define GRAFT_RETURN_IF_ERROR(expression)                  \
  do {                                                     \
    if (auto graft_status = (expression); !graft_status) { \
      return std::move(graft_status).error();              \
    }                                                      \
  } while (false)

// GRAFT_ASSIGN_OR_RETURN(auto model, load(path)): declares `model`, or leaves with the error.
#define GRAFT_ASSIGN_OR_RETURN(declaration, expression)              \
  auto GRAFT_CONCAT(graft_result_, __LINE__) = (expression);         \
  if (!GRAFT_CONCAT(graft_result_, __LINE__)) {                      \
    return std::move(GRAFT_CONCAT(graft_result_, __LINE__)).error(); \
  }                                                                  \
  declaration = std::move(GRAFT_CONCAT(graft_result_, __LINE__)).value()
