#include "api/exchange.h"

namespace graft::api {

bool is_json_body(const HttpRequest& request) {
  const std::string_view type = request.header("content-type");
  if (type.empty()) return true;
  const std::string_view media = type.substr(0, type.find(';'));
  std::string lower;
  for (const char c : media) {
    if (c != ' ') lower.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  }
  return lower == "application/json" ||
         (lower.starts_with("application/") && lower.ends_with("+json"));
}

}  // namespace graft::api
