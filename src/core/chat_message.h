// A chat answer after parsing: the whole message, and the pieces in which it grows. Plain values;
// what makes them is text/chat_output_parser.h, what writes them is api/.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace graft {

struct ToolCall {
  std::string id;         // made by api/: what models write is neither unique nor early
  std::string name;       // of a declared tool
  std::string arguments;  // JSON text as the model wrote it; whole only if the answer was not cut

  bool operator==(const ToolCall&) const = default;
};

struct ChatMessage {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;

  bool operator==(const ChatMessage&) const = default;
};

// A step of one tool call. The first of each call has its name; all have a piece of the arguments,
// perhaps an empty one.
struct ToolCallDelta {
  std::size_t index = 0;  // of the call in the message
  bool is_first = false;
  ToolCall call;  // id and name only in the first

  bool operator==(const ToolCallDelta&) const = default;
};

// What a message grew by: each string is appended to its place.
struct ChatDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;  // ascending by index

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
  bool operator==(const ChatDelta&) const = default;
};

// `message` with `delta` appended. Requires: deltas in the order in which they were made.
inline void append(ChatMessage& message, const ChatDelta& delta) {
  message.reasoning += delta.reasoning;
  message.content += delta.content;
  for (const ToolCallDelta& step : delta.tool_calls) {
    if (step.index >= message.tool_calls.size()) message.tool_calls.resize(step.index + 1);
    ToolCall& call = message.tool_calls[step.index];
    if (step.is_first) {
      call.id = step.call.id;
      call.name = step.call.name;
    }
    call.arguments += step.call.arguments;
  }
}

}  // namespace graft
