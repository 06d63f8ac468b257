// The document describes every route and every field, and refers to nothing that is not there.
#include "api/openapi.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "api/testing/scripted_generation.h"

namespace graft::api {
namespace {

using nlohmann::json;

const json& document() {
  static const json made = json::parse(openapi_document(test_facts()));
  return made;
}

std::string template_of(std::string_view path) {
  if (!path.ends_with("/*")) return std::string(path);
  return std::string(path.substr(0, path.size() - 1)) + "{id}";
}

const json& operation(const Route& route) {
  std::string method(route.method);
  for (char& c : method) c = static_cast<char>(c | 32);
  return document()["paths"][template_of(route.path)][method];
}

void collect_references(const json& value, std::set<std::string>& found) {
  for (const auto& [key, child] : value.items()) {
    if (key == "$ref") found.insert(child.get<std::string>());
    if (child.is_structured()) collect_references(child, found);
  }
}

TEST(OpenApi, EveryRouteIsDescribed) {
  std::set<std::string> ids;
  std::size_t n_operations = 0;
  for (const Route& route : routes()) {
    SCOPED_TRACE(std::string(route.method) + " " + std::string(route.path));
    EXPECT_NE(find_notes(route.method, route.path), nullptr)
        << "openapi_notes.cpp has no line for it";
    const json& described = operation(route);
    ASSERT_TRUE(described.is_object());
    for (const char* status :
         {"200", "400", "401", "403", "404", "405", "413", "415", "429", "503"}) {
      EXPECT_TRUE(described["responses"].contains(status)) << status;
    }
    EXPECT_EQ(described.contains("requestBody"), route.method == "POST");
    EXPECT_EQ(described.contains("security"), route.role != Role::kOpen);
    EXPECT_TRUE(ids.insert(described["operationId"]).second);
  }
  for (const auto& [path, methods] : document()["paths"].items()) n_operations += methods.size();
  EXPECT_EQ(n_operations, routes().size());
}

TEST(OpenApi, EveryFieldIsDescribed) {
  std::size_t n_fields = 0;
  for (const auto& [path, methods] : document()["paths"].items()) {
    const RouteNotes* notes = find_notes("POST", path);
    if (notes == nullptr || notes->body == Endpoint::kNone) continue;
    const std::string name =
        methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    const json& schema = document()["components"]["schemas"][name.substr(name.rfind('/') + 1)];
    EXPECT_EQ(schema["additionalProperties"], true);
    for (const Field& field : fields_of(notes->body)) {
      EXPECT_TRUE(schema["properties"].contains(field.name)) << path << " " << field.name;
      ++n_fields;
    }
    for (const auto& required : schema.value("required", json::array())) {
      EXPECT_TRUE(schema["properties"].contains(required)) << path << " " << required;
    }
  }
  EXPECT_GT(n_fields, 250U);
}

TEST(OpenApi, RangesAreThoseOfTheChecks) {
  const json& fields = document()["components"]["schemas"]["ChatRequest"]["properties"];
  EXPECT_EQ(fields["temperature"]["minimum"], 0);
  EXPECT_EQ(fields["temperature"]["maximum"], 10);
  EXPECT_EQ(fields["n"]["maximum"], 16);
  EXPECT_EQ(fields["max_tokens"]["maximum"], test_facts().n_context_tokens);
  EXPECT_EQ(fields["messages"]["$ref"], "#/components/schemas/ChatMessages");
  EXPECT_EQ(fields["mirostat"]["enum"], json({0, nullptr}));
}

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  std::set<std::string> found;
  collect_references(document(), found);
  EXPECT_GT(found.size(), 20U);
  for (const std::string& reference : found) {
    EXPECT_TRUE(document().contains(json::json_pointer(reference.substr(1)))) << reference;
  }
}

TEST(OpenApi, StreamsAreDescribedWhereTheyExist) {
  for (const Route& route : routes()) {
    const RouteNotes* notes = find_notes(route.method, route.path);
    if (notes == nullptr) continue;
    const json& content = operation(route)["responses"]["200"]["content"];
    EXPECT_EQ(content.contains("text/event-stream"), notes->streams) << route.path;
    EXPECT_EQ(content.contains("application/json"), !notes->answer.empty()) << route.path;
  }
}

}  // namespace
}  // namespace graft::api
