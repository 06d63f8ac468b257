// The messages of a chat request, checked one by one: roles, contents, calls and their results.
// Pure functions of a body that check_fields() has passed.
#pragma once

#include <string>

#include "api/request_json.h"
#include "base/result.h"

namespace graft::api {

// The `messages` array as ChatPrompt::messages_json. Errors name the message and the field.
Result<std::string> read_messages(const Json& body);

}  // namespace graft::api
