#include "api/request_json.h"

#include <cstddef>
#include <new>
#include <string>
#include <utility>

namespace graft::api {
namespace {

// Walks the bytes once before they are parsed, so that depth costs no stack anywhere. It looks at
// structure only; what is not JSON is left for the parser to say.
class Prescan {
 public:
  explicit Prescan(std::string_view body) : body_(body) {}

  Status run() {
    for (; at_ < body_.size(); ++at_) {
      const char c = body_[at_];
      if (c == '"') {
        GRAFT_RETURN_IF_ERROR(skip_string());
      } else if (c == ',') {
        if (++n_commas_ >= kMaxJsonValues) {
          return invalid_argument("The body has more than " + std::to_string(kMaxJsonValues) +
                                  " values.");
        }
      } else if (c == '{' || c == '[') {
        if (++depth_ > kMaxJsonDepth) {
          return invalid_argument("The body is nested deeper than " +
                                  std::to_string(kMaxJsonDepth) + " levels.");
        }
      } else if (c == '}' || c == ']') {
        --depth_;
      }
    }
    return {};
  }

 private:
  // From an opening quote to the closing one, or to the end.
  Status skip_string() {
    for (++at_; at_ < body_.size() && body_[at_] != '"'; ++at_) {
      if (body_[at_] != '\\') continue;
      if (body_.substr(at_ + 1, 5) == "u0000") {
        return invalid_argument("The body holds the character U+0000 (at byte " +
                                std::to_string(at_) + "), which is not accepted.");
      }
      ++at_;  // whatever is escaped, a quote included
    }
    return {};
  }

  std::string_view body_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int n_commas_ = 0;
};

}  // namespace

namespace {

Result<Json> parse(std::string_view body) {
  GRAFT_RETURN_IF_ERROR(Prescan(body).run());
  try {
    return Json::parse(body);
  } catch (const Json::parse_error& error) {
    return invalid_argument("The body is not valid JSON: error near byte " +
                            std::to_string(error.byte) + ".");
  } catch (const Json::exception&) {
    // The one other error that the parser has: a number beyond every floating-point range.
    return invalid_argument("The body is not valid JSON: a number is out of range.");
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResourceExhausted, "There is no memory for the request.", {}};
  }
}

}  // namespace

Result<Json> parse_request_json(std::string_view body) {
  GRAFT_ASSIGN_OR_RETURN(Json parsed, parse(body));
  if (!parsed.is_object()) return invalid_argument("The body must be a JSON object.");
  return parsed;
}

Result<Json> parse_request_array(std::string_view body) {
  GRAFT_ASSIGN_OR_RETURN(Json parsed, parse(body));
  if (!parsed.is_array()) return invalid_argument("The body must be a JSON array.");
  return parsed;
}

}  // namespace graft::api
