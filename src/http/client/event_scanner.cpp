#include "http/client/event_scanner.h"

#include <algorithm>
#include <array>

namespace graft {
namespace {

constexpr std::size_t kMaxBeginningBytes = std::size_t{1} << 10;
constexpr std::size_t kMaxEventBytes = std::size_t{1} << 20;

// The value behind `key`, which includes its quotes, from its first character on; "" when there is
// none. Servers differ in the space behind the colon.
std::string_view value_of(std::string_view event, std::string_view key) {
  const std::size_t at = event.find(key);
  if (at == std::string_view::npos) return {};
  event.remove_prefix(at + key.size());
  const std::size_t begin = event.find_first_not_of(" :");
  return begin == std::string_view::npos ? std::string_view() : event.substr(begin);
}

bool has_text(std::string_view event) {
  static constexpr std::array<std::string_view, 5> kKeys = {
      R"("text")", R"("content")", R"("reasoning_content")", R"("reasoning")", R"("arguments")"};
  return std::any_of(kKeys.begin(), kKeys.end(), [event](std::string_view key) {
    const std::string_view value = value_of(event, key);
    return value.size() > 1 && value[0] == '"' && value[1] != '"';
  });
}

}  // namespace

void EventScanner::feed(std::string_view bytes) {
  const std::size_t n_wanted = kMaxBeginningBytes - beginning_.size();
  beginning_.append(bytes.substr(0, n_wanted));
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() > kMaxEventBytes) {
      if (error_event_.empty()) error_event_ = "an event is longer than 1 MiB";
      return;
    }
    if (end == std::string_view::npos) {
      line_.append(part);
      return;
    }
    if (line_.empty()) {
      take_line(part);
    } else {
      line_.append(part);
      take_line(line_);
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void EventScanner::take_line(std::string_view line) {
  static constexpr std::string_view kField = "data:";
  if (!line.starts_with(kField)) return;
  line.remove_prefix(kField.size());
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line == "[DONE]") {
    done_ = true;
    return;
  }
  if (value_of(line, R"("usage")").starts_with('{')) usage_event_ = line;
  // At the top level, where both dialects have it; a text cannot begin like this.
  if (error_event_.empty() && line.starts_with(R"({"error")")) error_event_ = line;
  if (has_text(line)) text_times_.push_back(now_);
}

}  // namespace graft
