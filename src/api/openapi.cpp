#include "api/openapi.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "api/request_json.h"

namespace graft::api {
namespace {

constexpr double kLargestExact = 9007199254740992.0;  // 2^53

struct BodyName {
  Endpoint endpoint;
  const char* schema;
  std::array<const char*, 2> required;  // fields; "" = none
};
constexpr BodyName kBodies[] = {
    {Endpoint::kChat, "ChatRequest", {"messages", ""}},
    {Endpoint::kCompletions, "CompletionRequest", {"prompt", ""}},
    {Endpoint::kMessages, "MessagesRequest", {"messages", "max_tokens"}},
    {Endpoint::kCountTokens, "CountTokensRequest", {"messages", ""}},
    {Endpoint::kResponses, "ResponsesRequest", {"input", ""}},
    {Endpoint::kEmbeddings, "EmbeddingsRequest", {"input", ""}},
    {Endpoint::kTokenize, "TokenizeRequest", {"", ""}},
    {Endpoint::kDetokenize, "DetokenizeRequest", {"tokens", ""}},
};

struct Failure {
  const char* status;
  const char* description;
};
constexpr Failure kFailures[] = {
    {"400", "The request is wrong; `param` names the field"},
    {"401", "A key is needed"},
    {"403", "The key may not do this"},
    {"404", "There is no such path, model or module"},
    {"405", "The path answers to other methods"},
    {"413", "The body is too large"},
    {"415", "The body is not application/json"},
    {"429", "Too many requests wait; Retry-After says when to come back"},
    {"503", "The model is being loaded, or the server stops"},
};

Json reference(std::string_view schema) {
  return {{"$ref", "#/components/schemas/" + std::string(schema)}};
}

// Whole numbers as such, so that a reader sees 2147483647 and not 2147483647.0.
Json number(double value) {
  if (std::abs(value) < kLargestExact && value == std::floor(value)) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

bool counts_tokens(std::string_view name) {
  return name == "max_tokens" || name == "max_completion_tokens" || name == "n_predict" ||
         name == "max_output_tokens" || name == "min_tokens";
}

Json numeric_schema(const Field& field, const ModelFacts& facts) {
  const char* type = field.type == FieldType::kInteger ? "integer" : "number";
  const double max = counts_tokens(field.name) ? facts.n_context_tokens : field.max;
  return {{"type", {type, "null"}}, {"minimum", number(field.min)}, {"maximum", number(max)}};
}

Json typed_schema(const Field& field, const ModelFacts& facts) {
  switch (field.type) {
    case FieldType::kBool: return {{"type", {"boolean", "null"}}};
    case FieldType::kInteger:
    case FieldType::kNumber: return numeric_schema(field, facts);
    case FieldType::kString: return {{"type", {"string", "null"}}};
    case FieldType::kObject: return {{"type", {"object", "null"}}};
    case FieldType::kArray: return {{"type", {"array", "null"}}};
    case FieldType::kStringOrArray: return {{"type", {"string", "array", "null"}}};
    case FieldType::kBoolOrInteger: return {{"type", {"boolean", "integer", "null"}}};
    case FieldType::kAny: break;
  }
  return Json::object();
}

// The values at which an unsupported field changes nothing.
Json neutral_schema(const Field& field) {
  switch (field.type) {
    case FieldType::kBool: return {{"enum", {false, nullptr}}};
    case FieldType::kString: return {{"enum", {"", nullptr}}};
    case FieldType::kArray: return {{"type", {"array", "null"}}, {"maxItems", 0}};
    case FieldType::kObject: return {{"type", {"object", "null"}}, {"maxProperties", 0}};
    case FieldType::kInteger:
    case FieldType::kNumber: return {{"enum", {number(field.neutral), nullptr}}};
    default: return {{"enum", {false, "", nullptr}}};
  }
}

Json field_description(const Field& field, Endpoint endpoint, const ModelFacts& facts) {
  Json schema = typed_schema(field, facts);
  if (field.use == FieldUse::kNeutralOnly) {
    schema = neutral_schema(field);
    schema["description"] = "Not supported; accepted where it changes nothing.";
  } else if (const auto name = field_schema(endpoint, field.name); !name.empty()) {
    schema = reference(name);
  }
  if (field.use == FieldUse::kIgnored) schema["description"] = "Accepted, without effect.";
  if (field.name == "model") {
    schema["minLength"] = 1;
    schema["maxLength"] = 512;
    schema["description"] = "The base, a module, or `module@version`; absent: the base.";
  }
  return schema;
}

Json body_schema(const BodyName& body, const ModelFacts& facts) {
  Json properties = Json::object();
  for (const Field& field : fields_of(body.endpoint)) {
    properties[std::string(field.name)] = field_description(field, body.endpoint, facts);
  }
  Json schema = {{"type", "object"}, {"additionalProperties", true}};
  schema["properties"] = std::move(properties);
  for (const char* name : body.required) {
    if (*name != '\0') schema["required"].push_back(name);
  }
  return schema;
}

Json success(const RouteNotes* notes) {
  Json answer = {{"description", "The answer"}};
  if (notes == nullptr || notes->answer.empty()) {
    answer["content"]["text/plain"]["schema"] = {{"type", "string"}};
  } else {
    answer["content"]["application/json"]["schema"] = reference(notes->answer);
  }
  if (notes != nullptr && notes->streams) {
    // Without a schema: 3.1 has none for streams, and schemathesis takes it for that of each event.
    answer["content"]["text/event-stream"] = Json::object();
  }
  return answer;
}

Json failure(const Failure& one) {
  Json answer = {{"description", one.description}};
  answer["content"]["application/json"]["schema"] = reference("Error");
  const std::string status = one.status;
  if (status == "405") answer["headers"]["Allow"]["schema"] = {{"type", "string"}};
  if (status == "429" || status == "503") {
    answer["headers"]["Retry-After"]["schema"] = {{"type", "string"}};
  }
  return answer;
}

std::string template_of(std::string_view path) {
  if (!path.ends_with("/*")) return std::string(path);
  return std::string(path.substr(0, path.size() - 1)) + "{id}";
}

// "POST /v1/chat/completions" -> "post_v1_chat_completions".
std::string operation_id(const Route& route) {
  std::string id;
  for (const char c : std::string(route.method) + std::string(route.path)) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (upper) id.push_back(static_cast<char>(c + 32));
    if (plain) id.push_back(c);
    if (!upper && !plain && !id.ends_with('_')) id.push_back('_');
  }
  return id;
}

Json operation(const Route& route) {
  const RouteNotes* notes = find_notes(route.method, route.path);
  Json made = {{"operationId", operation_id(route)}};
  if (notes != nullptr) made["summary"] = std::string(notes->summary);
  if (route.path.ends_with("/*")) {
    made["parameters"] = {{{"name", "id"},
                           {"in", "path"},
                           {"required", true},
                           {"schema", {{"type", "string"}, {"minLength", 1}}}}};
  }
  for (const BodyName& body : kBodies) {
    if (notes == nullptr || body.endpoint != notes->body) continue;
    made["requestBody"]["required"] = true;
    made["requestBody"]["content"]["application/json"]["schema"] = reference(body.schema);
  }
  if (notes != nullptr && !notes->request.empty()) {
    made["requestBody"]["required"] = true;
    made["requestBody"]["content"]["application/json"]["schema"] = reference(notes->request);
  }
  made["responses"]["200"] = success(notes);
  for (const Failure& one : kFailures) made["responses"][one.status] = failure(one);
  if (route.role != Role::kOpen) {
    // Without keys on the server none is needed.
    made["security"] = Json::array({{{"bearer", Json::array()}}, Json::object()});
  }
  return made;
}

std::string lower(std::string_view method) {
  std::string text;
  for (const char c : method) text.push_back(static_cast<char>(c | 32));
  return text;
}

}  // namespace

std::string openapi_document(const ModelFacts& facts) {
  Json document = {{"openapi", "3.1.0"}};
  document["info"] = {{"title", "Graft"},
                      {"version", GRAFT_VERSION},
                      {"description", "One base model, with modules chosen by each request."}};
  for (const Route& route : routes()) {
    document["paths"][template_of(route.path)][lower(route.method)] = operation(route);
  }
  document["components"]["schemas"] = Json::parse(openapi_schemas());
  for (const BodyName& body : kBodies) {
    document["components"]["schemas"][body.schema] = body_schema(body, facts);
  }
  document["components"]["securitySchemes"]["bearer"] = {{"type", "http"}, {"scheme", "bearer"}};
  return document.dump();
}

Answer answer_openapi(const RouteCall& call) {
  HttpResponse response;
  response.headers = {{"content-type", "application/json"}};
  response.body = openapi_document(call.service.parts().facts);
  return response;
}

}  // namespace graft::api
