#include "api/parse_constraint.h"

#include <string>
#include <utility>
#include <vector>

#include "api/fields.h"
#include "api/json_slice.h"

namespace graft::api {
namespace {

using Kind = ConstraintSource::Kind;

Error unsupported(const std::string& param, const std::string& what) {
  return Error{ErrorCode::kNotSupported, "'" + param + "': " + what + " is not supported.", param};
}

// The text of the schema at `path`; given as a string it is that string.
std::string schema_text(const Json& schema, std::string_view body,
                        std::initializer_list<std::string_view> path) {
  if (schema.is_string()) return schema.get<std::string>();
  const std::string_view slice = slice_json(body, path);
  return slice.empty() ? schema.dump() : std::string(slice);
}

class ConstraintFields {
 public:
  ConstraintFields(const Json& body, std::string_view text) : body_(body), text_(text) {}

  Status read(GenerationCall& call) {
    GRAFT_RETURN_IF_ERROR(read_response_format());
    GRAFT_RETURN_IF_ERROR(read_members(body_, ""));
    GRAFT_RETURN_IF_ERROR(read_llama_server());
    if (const Json* outputs = find_field(body_, "structured_outputs")) {
      GRAFT_RETURN_IF_ERROR(read_members(*outputs, "structured_outputs."));
    }
    if (found_.size() > 1) {
      return invalid_argument("'" + found_[0].param + "' and '" + found_[1].param +
                                  "' cannot both be given: an answer has one form.",
                              found_[1].param);
    }
    if (!found_.empty()) {
      call.constraint = std::move(found_.front().source);
      call.constraint_param = std::move(found_.front().param);
    }
    return {};
  }

 private:
  struct Found {
    ConstraintSource source;
    std::string param;
  };

  void add(ConstraintSource source, std::string param) {
    found_.push_back({std::move(source), std::move(param)});
  }

  Status read_response_format() {
    const Json* format = find_field(body_, "response_format");
    if (format == nullptr) return {};
    const Json* type = find_field(*format, "type");
    if (type == nullptr || !type->is_string()) return must_be("response_format.type", "a string");
    if (*type == "text") return {};
    if (*type == "json_schema") return read_json_schema(*format);
    if (*type != "json_object") {
      return unsupported("response_format.type",
                         "another type than text, json_object and json_schema");
    }
    const Json* schema = find_field(*format, "schema");
    if (schema == nullptr) {
      add({.kind = Kind::kJsonObject}, "response_format");
      return {};
    }
    if (!schema->is_object()) return must_be("response_format.schema", "an object");
    add({.kind = Kind::kJsonSchema,
         .text = schema_text(*schema, text_, {"response_format", "schema"})},
        "response_format.schema");
    return {};
  }

  Status read_json_schema(const Json& format) {
    const std::string param = "response_format.json_schema";
    const Json* described = find_field(format, "json_schema");
    if (described == nullptr || !described->is_object()) return must_be(param, "an object");
    const Json* schema = find_field(*described, "schema");
    if (schema == nullptr || !schema->is_object()) return must_be(param + ".schema", "an object");
    const Json* strict = find_field(*described, "strict");
    if (strict != nullptr && !strict->is_boolean()) {
      return must_be(param + ".strict", "true or false");
    }
    const bool lenient = strict == nullptr || !strict->get<bool>();
    add({.kind = Kind::kJsonSchema,
         .text = schema_text(*schema, text_, {"response_format", "json_schema", "schema"}),
         .lenient = lenient},
        param + ".schema");
    return {};
  }

  Status read_llama_server() {
    GRAFT_RETURN_IF_ERROR(read_string(body_, "grammar", "grammar", Kind::kGrammar));
    const Json* schema = find_field(body_, "json_schema");
    if (schema == nullptr) return {};
    if (!schema->is_object()) return must_be("json_schema", "an object");
    add({.kind = Kind::kJsonSchema, .text = schema_text(*schema, text_, {"json_schema"})},
        "json_schema");
    return {};
  }

  // vLLM's members; in the body itself their names begin with "guided_".
  Status read_members(const Json& object, const std::string& place) {
    const std::string prefix = place.empty() ? "guided_" : "";
    const auto param = [&](const char* name) { return place + prefix + name; };
    const auto field = [&](const char* name) {
      return find_field(object, (prefix + name).c_str());
    };
    if (const Json* schema = field("json")) {
      if (!schema->is_object() && !schema->is_string()) {
        return must_be(param("json"), "an object, or the text of one");
      }
      const std::string name = prefix + "json";
      add({.kind = Kind::kJsonSchema,
           .text = place.empty() ? schema_text(*schema, text_, {name})
                                 : schema_text(*schema, text_, {"structured_outputs", name})},
          param("json"));
    }
    GRAFT_RETURN_IF_ERROR(
        read_string(object, (prefix + "regex").c_str(), param("regex"), Kind::kRegex));
    GRAFT_RETURN_IF_ERROR(
        read_string(object, (prefix + "grammar").c_str(), param("grammar"), Kind::kGrammar));
    GRAFT_RETURN_IF_ERROR(read_choice(field("choice"), param("choice")));
    return place.empty() ? Status() : read_other_members(object, place);
  }

  Status read_other_members(const Json& object, const std::string& place) {
    if (const Json* any = find_field(object, "json_object")) {
      if (!any->is_boolean()) return must_be(place + "json_object", "true or false");
      if (any->get<bool>()) add({.kind = Kind::kJsonObject}, place + "json_object");
    }
    for (const char* name : {"structural_tag", "whitespace_pattern", "disable_any_whitespace",
                             "disable_additional_properties"}) {
      const Json* value = find_field(object, name);
      if (value != nullptr && *value != false) return unsupported(place + name, "this member");
    }
    return {};
  }

  Status read_string(const Json& object, const char* name, std::string param, Kind kind) {
    const Json* value = find_field(object, name);
    if (value == nullptr || *value == "") return {};
    if (!value->is_string()) return must_be(param, "a string");
    add({.kind = kind, .text = value->get<std::string>()}, std::move(param));
    return {};
  }

  Status read_choice(const Json* list, const std::string& param) {
    if (list == nullptr) return {};
    if (!list->is_array()) return must_be(param, "an array of strings");
    ConstraintSource source{.kind = Kind::kChoice};
    for (const Json& choice : *list) {
      if (!choice.is_string()) return must_be(param, "an array of strings");
      source.choices.push_back(choice.get<std::string>());
    }
    add(std::move(source), param);
    return {};
  }

  const Json& body_;
  const std::string_view text_;
  std::vector<Found> found_;
};

}  // namespace

Status read_constraint(const Json& body, std::string_view text, GenerationCall& call) {
  return ConstraintFields(body, text).read(call);
}

}  // namespace graft::api
