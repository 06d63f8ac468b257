// The parser of the calls that generic_tools.h describes. Iterative, whatever the nesting.
#include <cctype>
#include <optional>
#include <utility>

#include "text/generic_tools.h"
#include "text/tool_name_set.h"

namespace graft {
namespace {

// How far a piece of text was found.
enum class Found { kWhole, kBegun, kNot };

// Reads along the text of one call.
class Cursor {
 public:
  Cursor(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  std::size_t at() const { return at_; }
  bool is_at_end() const { return at_ == text_.size(); }

  void skip_space() {
    while (!is_at_end() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  // `word`, perhaps behind white space. kBegun: the text ends inside it.
  Found read(std::string_view word) {
    skip_space();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(word)) {
      at_ += word.size();
      return Found::kWhole;
    }
    return word.starts_with(rest) ? Found::kBegun : Found::kNot;
  }

  // A string without escapes, which is all that names of functions need.
  Found read_name(std::string& name) {
    if (const Found quote = read("\""); quote != Found::kWhole) return quote;
    const std::size_t end = text_.find_first_of("\"\\", at_);
    if (end == std::string_view::npos) return Found::kBegun;
    if (text_[end] != '"') return Found::kNot;
    name = text_.substr(at_, end - at_);
    at_ = end + 1;
    return Found::kWhole;
  }

  // An object, up to its closing bracket, or as much of it as there is.
  Found read_object(std::string& object) {
    skip_space();
    if (is_at_end()) return Found::kBegun;
    if (text_[at_] != '{') return Found::kNot;
    const std::size_t begin = at_;
    int depth = 0;
    bool in_string = false;
    for (; !is_at_end(); ++at_) {
      const char c = text_[at_];
      if (in_string && c == '\\') {
        ++at_;
        if (is_at_end()) break;
      } else if (c == '"') {
        in_string = !in_string;
      } else if (!in_string && (c == '{' || c == '[')) {
        ++depth;
      } else if (!in_string && (c == '}' || c == ']') && --depth == 0) {
        ++at_;
        object = text_.substr(begin, at_ - begin);
        return Found::kWhole;
      }
    }
    object = text_.substr(begin);
    return Found::kBegun;
  }

 private:
  std::string_view text_;
  std::size_t at_;
};

class GenericSyntax : public AnswerSyntax {
 public:
  explicit GenericSyntax(std::vector<std::string> names) : tools_(std::move(names)) {}

  Result<ChatMessage> parse(std::string_view text, bool is_whole) const override {
    ChatMessage message;
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t open = find_open(text, at, is_whole);
      add_content(message, text.substr(at, open - at));
      at = open;
      if (!text.substr(at).starts_with(kCallOpen)) break;  // the end, or the beginning of a marker
      ToolCall call;
      Cursor cursor(text, at + kCallOpen.size());
      const Found found = read_call(cursor, call);
      if (!call.name.empty()) {
        message.tool_calls.push_back(std::move(call));
        at = found == Found::kBegun ? text.size() : cursor.at();
      } else if (found == Found::kBegun && !is_whole) {
        break;
      } else {
        add_content(message, text.substr(at, kCallOpen.size()));  // not a call
        at += kCallOpen.size();
      }
    }
    return message;
  }

  bool nests() const override { return false; }
  bool has_tool(std::string_view name) const override { return tools_.contains(name); }
  bool begins_longer_tool(std::string_view) const override { return false; }

 private:
  // Where the next marker begins; or, in a text that may go on, what could become one.
  static std::size_t find_open(std::string_view text, std::size_t at, bool is_whole) {
    const std::size_t open = text.find(kCallOpen, at);
    if (open != std::string_view::npos) return open;
    if (is_whole) return text.size();
    const std::size_t first =
        text.size() - at < kCallOpen.size() ? at : text.size() - kCallOpen.size() + 1;
    for (std::size_t begin = first; begin < text.size(); ++begin) {
      if (kCallOpen.starts_with(text.substr(begin))) return begin;
    }
    return text.size();
  }

  // White space between and behind calls is no content.
  static void add_content(ChatMessage& message, std::string_view text) {
    const bool is_space = text.find_first_not_of(" \t\r\n") == std::string_view::npos;
    if (!message.tool_calls.empty() && is_space) return;
    message.content += text;
  }

  // `call` has a name once the arguments begin. What follows whole arguments is not looked at
  // closely: the call is known.
  Found read_call(Cursor& cursor, ToolCall& call) const {
    std::string name;
    for (const std::string_view word : {"{", "\"name\"", ":"}) {
      if (const Found found = cursor.read(word); found != Found::kWhole) return found;
    }
    if (const Found found = cursor.read_name(name); found != Found::kWhole) return found;
    if (!tools_.contains(name)) return Found::kNot;
    for (const std::string_view word : {",", "\"arguments\"", ":"}) {
      if (const Found found = cursor.read(word); found != Found::kWhole) return found;
    }
    const Found found = cursor.read_object(call.arguments);
    if (!call.arguments.empty()) call.name = name;
    if (found != Found::kWhole) return found;
    for (const std::string_view word : {std::string_view("}"), kCallClose}) {
      if (cursor.read(word) == Found::kBegun) return Found::kBegun;
    }
    return Found::kWhole;
  }

  ToolNameSet tools_;
};

}  // namespace

std::shared_ptr<const AnswerSyntax> make_generic_syntax(std::vector<std::string> tool_names) {
  return std::make_shared<GenericSyntax>(std::move(tool_names));
}

}  // namespace graft
