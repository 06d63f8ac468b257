#include "text/chat_output_parser.h"

#include <algorithm>
#include <optional>

namespace graft {
namespace {

// Content and reasoning beyond this many bytes are cut, and so much is kept of them: more than any
// marker is long, at both ends, as syntaxes look at how a part begins.
constexpr std::size_t kCutBytes = 2048;
constexpr std::size_t kKeptHead = 64;
constexpr std::size_t kKeptTail = 512;
// What follows content in a text that is not finished: at most the beginning of a marker.
constexpr std::size_t kMaxHeldBack = 128;
// A text longer than this is parsed only when it grew by 1 / kGrowth of itself.
constexpr std::size_t kParsedAtOnce = 4096;
constexpr std::size_t kGrowth = 32;

// The number of open brackets behind `text`, if `depth` were open before it; nothing where there
// were too many. Brackets inside JSON strings count as well: where a string begins is known only to
// the parser that must be kept from harm.
std::optional<int> open_brackets(int depth, std::string_view text) {
  for (const char c : text) {
    if (c == '[' || c == '{') {
      if (++depth > kMaxOutputBrackets) return std::nullopt;
    } else if (c == ']' || c == '}') {
      depth = std::max(depth - 1, 0);
    }
  }
  return depth;
}

}  // namespace

ChatOutputParser::ChatOutputParser(std::shared_ptr<const AnswerSyntax> syntax)
    : syntax_(std::move(syntax)), n_next_cut_(kCutBytes) {
  if (syntax_ == nullptr) return;
  // A continued message: its beginning stands in the prompt and is not handed out again.
  if (const auto begun = syntax_->parse("", false)) {
    n_reasoning_ = begun->reasoning.size();
    n_content_ = begun->content.size();
  }
}

ChatDelta ChatOutputParser::push(std::string_view text) {
  if (syntax_ == nullptr) {
    return ChatDelta{.reasoning = {}, .content = std::string(text), .tool_calls = {}};
  }
  if (failed() || text.empty()) return {};
  if (syntax_->nests()) {
    const auto depth = open_brackets(depth_, text);
    if (!depth) {
      error_ = "The answer was ended: it is nested deeper than " +
               std::to_string(kMaxOutputBrackets) + " brackets.";
      return {};
    }
    depth_ = *depth;
  }
  text_ += text;
  const std::size_t grown = text_.size() - n_parsed_;
  if (text_.size() > kParsedAtOnce && grown * kGrowth < text_.size()) return {};
  return parse(false);
}

ChatDelta ChatOutputParser::finish() {
  if (syntax_ == nullptr || failed()) return {};
  return parse(true);
}

ChatDelta ChatOutputParser::parse(bool is_whole) {
  n_parsed_ = text_.size();
  auto message = syntax_->parse(text_, is_whole);
  if (message) {
    ChatDelta delta = difference(*message, is_whole);
    // Where text turns out to be no call after all, parsers lose what they had found before.
    const bool grew = message->content.size() >= last_.content.size() &&
                      message->reasoning.size() >= last_.reasoning.size();
    if (!is_whole && grew && !cut(*message)) last_ = std::move(*message);
    return delta;
  }
  if (!is_whole) return {};
  return end_unparsed(message.error().message);
}

// Text that only looked like the beginning of a call is content; what is wrong inside a call is an
// error.
ChatDelta ChatOutputParser::end_unparsed(const std::string& reason) {
  const std::string& shown = last_.content.empty() ? last_.reasoning : last_.content;
  const std::size_t at = text_.find(shown);
  if (!calls_.empty() || at == std::string::npos) {
    error_ = reason;
    return {};
  }
  ChatDelta delta;
  delta.content = text_.substr(at + shown.size());
  return delta;
}

ChatDelta ChatOutputParser::difference(const ChatMessage& message, bool is_last) {
  ChatDelta delta;
  const auto rest = [](const std::string& text, std::size_t& n_given) {
    if (text.size() <= n_given) return std::string();
    const std::string more = text.substr(n_given);
    n_given = text.size();
    return more;
  };
  delta.reasoning = rest(message.reasoning, n_reasoning_);
  delta.content = rest(message.content, n_content_);
  for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
    const bool is_over = is_last || i + 1 < message.tool_calls.size();
    add_call(message.tool_calls[i], i, is_over, delta);
  }
  return delta;
}

void ChatOutputParser::add_call(const ToolCall& call, std::size_t index, bool is_last,
                                ChatDelta& delta) {
  if (index > calls_.size()) return;  // an earlier call has no name yet
  const bool is_first = index == calls_.size();
  if (is_first) {
    // Of two tools "get" and "get_time" the shorter name is certain only when arguments follow.
    const bool may_grow = call.arguments.size() <= 1 && syntax_->begins_longer_tool(call.name);
    if (!syntax_->has_tool(call.name) || (may_grow && !is_last)) return;
    calls_.push_back({call.name, 0});
  }
  Call& given = calls_[index];
  if (call.name != given.name || (!is_first && call.arguments.size() <= given.n_arguments)) return;
  ToolCallDelta step;
  step.index = index;
  step.is_first = is_first;
  if (is_first) step.call.name = call.name;
  step.call.arguments = call.arguments.substr(given.n_arguments);
  given.n_arguments = call.arguments.size();
  delta.tool_calls.push_back(std::move(step));
}

// True if the text was cut; last_ is then what is left of the message.
bool ChatOutputParser::cut(const ChatMessage& message) {
  if (!message.tool_calls.empty()) return false;
  const bool in_content = !message.content.empty();
  std::string ChatMessage::*const field =
      in_content ? &ChatMessage::content : &ChatMessage::reasoning;
  if ((message.*field).size() < n_next_cut_) return false;
  if (cut_field(message, field)) return true;
  n_next_cut_ *= 2;
  return false;
}

// Takes the middle of the part that is growing out of text_. False, without any change, if the text
// that is left would not give the same message without that middle.
bool ChatOutputParser::cut_field(const ChatMessage& message, std::string ChatMessage::*field) {
  const std::string& part = message.*field;
  std::size_t begin = std::string::npos;
  for (std::size_t held = 0; held <= kMaxHeldBack && held + part.size() <= text_.size(); ++held) {
    const std::size_t at = text_.size() - held - part.size();
    if (text_.compare(at, part.size(), part) == 0) {
      begin = at;
      break;
    }
  }
  if (begin == std::string::npos) return false;
  std::size_t first = kKeptHead;
  std::size_t last = part.size() - kKeptTail;
  const auto is_inside_character = [&](std::size_t at) { return (part[at] & 0xC0) == 0x80; };
  while (is_inside_character(first)) ++first;
  while (is_inside_character(last)) ++last;
  ChatMessage expected = message;
  (expected.*field).erase(first, last - first);
  std::string shorter = text_;
  shorter.erase(begin + first, last - first);
  const auto depth = open_brackets(0, shorter);
  if (!depth) return false;
  const auto parsed = syntax_->parse(shorter, false);
  if (!parsed || !(*parsed == expected)) return false;
  text_ = std::move(shorter);
  n_parsed_ = text_.size();
  depth_ = *depth;
  (field == &ChatMessage::content ? n_content_ : n_reasoning_) = (expected.*field).size();
  last_ = std::move(expected);
  return true;
}

}  // namespace graft
