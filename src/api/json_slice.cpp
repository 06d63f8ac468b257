#include "api/json_slice.h"

#include <cstddef>

namespace graft::api {
namespace {

class JsonWalk {
 public:
  explicit JsonWalk(std::string_view json) : json_(json) { skip_space(); }

  // The value of the last member of that name, if this is an object.
  std::string_view member(std::string_view name) {
    std::string_view found;
    if (!take('{')) return found;
    skip_space();
    while (at_ < json_.size() && json_[at_] == '"') {
      const std::string_view key = string();
      skip_space();
      take(':');
      skip_space();
      const std::string_view value = this->value();
      if (key == name) found = value;
      skip_space();
      take(',');
      skip_space();
    }
    return found;
  }

  // From here to the end of a value; at least one byte.
  std::string_view value() {
    const std::size_t begin = at_;
    int depth = 0;
    while (at_ < json_.size()) {
      const char c = json_[at_];
      if (depth == 0 && (c == ',' || closes(c) > 0)) break;
      if (c == '"') {
        string();
      } else {
        depth += opens(c) - closes(c);
        ++at_;
      }
      if (depth == 0 && (c == '"' || closes(c) > 0)) break;
    }
    return json_.substr(begin, at_ - begin);
  }

 private:
  static int opens(char c) { return c == '{' || c == '[' ? 1 : 0; }
  static int closes(char c) { return c == '}' || c == ']' ? 1 : 0; }
  void skip_space() {
    while (at_ < json_.size() && std::string_view(" \t\r\n").find(json_[at_]) != json_.npos) ++at_;
  }
  bool take(char c) {
    if (at_ >= json_.size() || json_[at_] != c) return false;
    ++at_;
    return true;
  }
  // What stands between the quotes, escapes as they are.
  std::string_view string() {
    const std::size_t begin = ++at_;
    while (at_ < json_.size() && json_[at_] != '"') at_ += json_[at_] == '\\' ? 2 : 1;
    if (at_ > json_.size()) at_ = json_.size();
    const std::string_view text = json_.substr(begin, at_ - begin);
    take('"');
    return text;
  }

  const std::string_view json_;
  std::size_t at_ = 0;
};

}  // namespace

std::string_view slice_json(std::string_view json, std::initializer_list<std::string_view> path) {
  for (const std::string_view name : path) json = JsonWalk(json).member(name);
  return json;
}

}  // namespace graft::api
