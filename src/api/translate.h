// Pieces that the translations of chat dialects share: fields copied as they are, text out of
// blocks, tools and tool calls in chat's form. Pure functions over hostile JSON; any thread.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "api/fields.h"
#include "api/request_json.h"
#include "base/result.h"

namespace graft::api {

constexpr std::size_t kMaxBlocks = 4096;  // of a request: messages, items or blocks of one content

// Copies the fields that `from` has.
void copy_fields(const Json& from, Json& to, std::initializer_list<const char*> names);

// The string `name` of an object; an error if it is missing or something else.
Result<std::string> string_field(const Json& object, const char* name, const std::string& param);
// The `type` of a block; an error if the block is no object or has none.
Result<std::string> block_type(const Json& block, const std::string& param);
// Within kMaxBlocks, and an array.
Status check_list(const Json& list, const std::string& param);

// A string, or the `text` of blocks of the types that `types` names, as one text. Other types are
// an error.
Result<std::string> text_of(const Json& content, std::initializer_list<const char*> types,
                            const std::string& param);

// Where a schema stands in the client's body, and where in the chat request; JSON pointers.
struct SchemaPlace {
  std::string from;
  std::string to;
};
// The text of `chat`, in which the schemas keep the order that they have in `body`.
std::string text_in_order(const Json& chat, std::string_view body,
                          std::span<const SchemaPlace> places);

Json chat_message(const std::string& role, Json content);
// {"id", "type": "function", "function": {"name", "arguments"}}; arguments are JSON text.
Json chat_tool_call(const std::string& id, const std::string& name, const std::string& arguments);

}  // namespace graft::api
