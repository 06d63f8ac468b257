// The API's own description: an OpenAPI 3.1 document made of the route table and the field tables,
// so that what is checked and what is described cannot differ. Pure function, any thread.
#pragma once

#include <string>
#include <string_view>

#include "api/fields.h"
#include "api/generation_call.h"
#include "api/routes.h"

namespace graft::api {

// What the document says of a route beyond the route table.
struct RouteNotes {
  std::string_view path;  // as in the route table; "POST /x" where methods differ
  Endpoint body = Endpoint::kNone;
  std::string_view answer;  // schema of the JSON answer; "" = the answer is text
  bool streams = false;     // may answer with server-sent events
  std::string_view summary;
  std::string_view request = {};  // schema of a body that the field tables do not describe
};

// Null for a route without notes: its operation is described without bodies.
const RouteNotes* find_notes(std::string_view method, std::string_view path);

// The schemas of answers and of request fields with a shape of their own, as a JSON object.
std::string_view openapi_schemas();
// Name of the schema of a field, or "" when its type in the table says all.
std::string_view field_schema(Endpoint endpoint, std::string_view field);

std::string openapi_document(const ModelFacts& facts);

}  // namespace graft::api
