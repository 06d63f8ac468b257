#include "text/schema_rewriter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "text/gbnf.h"
#include "text/regex_grammar.h"

namespace graft {
namespace {

using NameSet = std::set<std::string_view>;

// Say nothing about which values are valid.
const NameSet& annotations() {
  static const NameSet names = {"title",           "description",     "default",
                                "examples",        "$schema",         "$id",
                                "$comment",        "deprecated",      "readOnly",
                                "writeOnly",       "$defs",           "definitions",
                                "$anchor",         "example",         "discriminator",
                                "contentEncoding", "contentMediaType"};
  return names;
}

// What rewrite_node() understands, whether or not it can be enforced everywhere.
const NameSet& known_keywords() {
  static const NameSet names = {"$ref",
                                "type",
                                "enum",
                                "const",
                                "anyOf",
                                "oneOf",
                                "allOf",
                                "properties",
                                "required",
                                "additionalProperties",
                                "items",
                                "prefixItems",
                                "minItems",
                                "maxItems",
                                "additionalItems",
                                "pattern",
                                "format",
                                "minLength",
                                "maxLength",
                                "minimum",
                                "maximum",
                                "exclusiveMinimum",
                                "exclusiveMaximum"};
  return names;
}

// Limits that the JSON notation of an answer cannot carry; harmless when they demand nothing.
bool demands_nothing(const std::string& keyword, const common_json& value) {
  if (keyword == "uniqueItems") return value.is_boolean() && !value.get<bool>();
  if (keyword == "minProperties" || keyword == "minContains") {
    return value.is_number_integer() && value.get<double>() == 0;
  }
  return false;
}

constexpr std::array<const char*, 7> kTypes = {"object", "array",   "string", "integer",
                                               "number", "boolean", "null"};

bool is_type(const std::string& name) {
  return std::find(kTypes.begin(), kTypes.end(), name) != kTypes.end();
}

bool has_any(const common_json& schema, std::initializer_list<const char*> keywords) {
  return std::any_of(keywords.begin(), keywords.end(),
                     [&](const char* keyword) { return schema.contains(keyword); });
}

// The type that a schema without one is about; "" for any value.
std::string implied_type(const common_json& schema) {
  if (has_any(schema, {"properties", "required", "additionalProperties"})) return "object";
  if (has_any(schema, {"items", "prefixItems", "minItems", "maxItems"})) return "array";
  if (has_any(schema, {"pattern", "minLength", "maxLength", "format"})) return "string";
  if (has_any(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) {
    return "number";
  }
  return "";
}

bool has_type(const common_json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return type == "null" && value.is_null();
}

bool has_one_of(const common_json& value, const common_json& types) {
  if (types.is_string()) return has_type(value, types.get<std::string>());
  return std::any_of(types.begin(), types.end(), [&](const common_json& type) {
    return type.is_string() && has_type(value, type.get<std::string>());
  });
}

// "a~1b%20c" -> "a/b c".
std::string decode_pointer_part(std::string_view part) {
  std::string decoded;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const std::string_view rest = part.substr(i);
    if (rest.starts_with("~1") || rest.starts_with("~0")) {
      decoded += rest[1] == '1' ? '/' : '~';
      ++i;
    } else {
      decoded += part[i];
    }
  }
  return decoded;
}

// Text of the client's, for an error message or a header.
std::string shown(const std::string& text) {
  std::string plain = text.substr(0, 80);
  for (char& c : plain) c = c >= 0x20 && c < 0x7F ? c : '?';
  return plain;
}

// The converter writes the first letters of these names into character classes as they are.
bool excludes_well(const std::string& name) {
  return std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 ||
           std::string_view("\"\\^]-").find(c) != std::string_view::npos;
  });
}

Error wrong(const std::string& path, const std::string& what) {
  return invalid_argument("the JSON schema at " + shown(path) + ": " + what);
}

}  // namespace

Status SchemaRewriter::leave_out(const std::string& what, const std::string& path) {
  if (!lenient_) {
    return not_supported("the JSON schema at " + shown(path) + ": " + what + " cannot be enforced");
  }
  result_.ignored_keywords.push_back(shown(path) + ": " + what);
  return {};
}

Status SchemaRewriter::leave_out_all(const common_json& schema, Names keywords,
                                     const std::string& path, const std::string& why) {
  for (const char* keyword : keywords) {
    if (!schema.contains(keyword)) continue;
    GRAFT_RETURN_IF_ERROR(leave_out("'" + std::string(keyword) + "' " + why, path));
  }
  return {};
}

Result<RewrittenSchema> SchemaRewriter::run() {
  const std::string text = root_.dump();
  for (int i = 0; result_.mark.empty() || text.find(result_.mark) != std::string::npos; ++i) {
    result_.mark = "graft" + std::to_string(i) + "x";
  }
  common_json start = common_json::object();
  start["$ref"] = "#";
  GRAFT_ASSIGN_OR_RETURN(const common_json whole, rewrite_reference(start, "#"));
  while (!pending_.empty()) {
    const std::string pointer = std::move(pending_.back());
    pending_.pop_back();
    GRAFT_ASSIGN_OR_RETURN(const common_json* target, find_target(pointer, pointer));
    GRAFT_ASSIGN_OR_RETURN(common_json rewritten, rewrite(*target, pointer));
    result_.definitions[references_.at(pointer)] = std::move(rewritten);
  }
  return std::move(result_);
}

common_json SchemaRewriter::stand_in(std::size_t index, char kind) const {
  common_json out = common_json::object();
  out["const"] = result_.mark + std::to_string(index) + kind;
  return out;
}

common_json SchemaRewriter::define(common_json definition) {
  result_.definitions.push_back(std::move(definition));
  return stand_in(result_.definitions.size() - 1, 'r');
}

Result<common_json> SchemaRewriter::rewrite(const common_json& schema, const std::string& path) {
  if (++n_parts_ > kMaxSchemaParts) {
    return wrong(path, "the schema has more than " + std::to_string(kMaxSchemaParts) + " parts");
  }
  if (schema.is_boolean()) {
    if (schema.get<bool>()) return common_json::object();
    return wrong(path, "'false' allows no value");
  }
  if (!schema.is_object()) return wrong(path, "a schema must be an object");
  GRAFT_RETURN_IF_ERROR(check_keywords(schema, path));
  return rewrite_node(schema, path);
}

Status SchemaRewriter::check_keywords(const common_json& schema, const std::string& path) {
  for (const auto& [name, value] : schema.items()) {
    if (annotations().contains(name) || known_keywords().contains(name) || name.starts_with("x-") ||
        demands_nothing(name, value)) {
      continue;
    }
    GRAFT_RETURN_IF_ERROR(leave_out("the keyword '" + shown(name) + "'", path));
  }
  return {};
}

Result<common_json> SchemaRewriter::rewrite_node(const common_json& schema,
                                                 const std::string& path) {
  if (schema.contains("$ref")) return rewrite_reference(schema, path);
  if (has_any(schema, {"const", "enum"})) return rewrite_values(schema, path);
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (schema.contains(keyword)) return rewrite_alternatives(keyword, schema, path);
  }
  if (schema.contains("allOf")) {
    const common_json& parts = schema.at("allOf");
    const bool is_wrapper = parts.is_array() && parts.size() == 1 && implied_type(schema).empty() &&
                            !schema.contains("type");
    if (is_wrapper) return rewrite(parts.at(std::size_t{0}), path + "/allOf/0");
    GRAFT_RETURN_IF_ERROR(leave_out("'allOf' of several schemas", path));
  }
  if (!schema.contains("type")) {
    const std::string type = implied_type(schema);
    if (type.empty()) return common_json::object();
    return rewrite_type(type, schema, path);
  }
  if (schema.at("type").is_array()) return rewrite_types(schema, path);
  if (!schema.at("type").is_string()) return wrong(path, "'type' must be a string or an array");
  return rewrite_type(schema.at("type").get<std::string>(), schema, path);
}

Result<common_json> SchemaRewriter::rewrite_types(const common_json& schema,
                                                  const std::string& path) {
  const common_json& types = schema.at("type");
  if (types.empty() || types.size() > kTypes.size()) {
    return wrong(path, "'type' must name one to seven types");
  }
  std::set<std::string> seen;
  common_json alternatives = common_json::array();
  for (const common_json& type : types) {
    if (!type.is_string() || !seen.insert(type.get<std::string>()).second) {
      return wrong(path, "'type' must hold different strings");
    }
    GRAFT_ASSIGN_OR_RETURN(common_json alternative,
                           rewrite_type(type.get<std::string>(), schema, path));
    alternatives.push_back(alternative);
  }
  common_json out = common_json::object();
  out["anyOf"] = std::move(alternatives);
  return out;
}

Result<common_json> SchemaRewriter::rewrite_type(const std::string& type, const common_json& schema,
                                                 const std::string& path) {
  if (!is_type(type)) return wrong(path, "there is no type '" + shown(type) + "'");
  if (type == "object") return rewrite_object(schema, path);
  if (type == "array") return rewrite_array(schema, path);
  if (type == "string") return rewrite_string(schema, path);
  if (type == "integer") return rewrite_integer(schema, path);
  if (type == "number") {
    GRAFT_RETURN_IF_ERROR(
        leave_out_all(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}, path,
                      "of a number that need not be an integer"));
  }
  common_json out = common_json::object();
  out["type"] = type;
  return out;
}

Result<common_json> SchemaRewriter::rewrite_reference(const common_json& schema,
                                                      const std::string& path) {
  const common_json& value = schema.at("$ref");
  if (!value.is_string()) return wrong(path, "'$ref' must be a string");
  const auto pointer = value.get<std::string>();
  if (pointer != "#" && !pointer.starts_with("#/")) {
    return wrong(path, "'$ref' can only point into the same schema, as \"#/$defs/NAME\"");
  }
  for (const auto& [name, other] : schema.items()) {
    if (name == "$ref" || !known_keywords().contains(name)) continue;
    GRAFT_RETURN_IF_ERROR(leave_out("'" + name + "' beside '$ref'", path));
  }
  const auto known = references_.find(pointer);
  if (known != references_.end()) return stand_in(known->second, 'r');
  if (auto target = find_target(pointer, path); !target) return std::move(target).error();
  references_[pointer] = result_.definitions.size();
  pending_.push_back(pointer);
  return define(common_json::object());
}

Result<const common_json*> SchemaRewriter::find_target(const std::string& pointer,
                                                       const std::string& path) const {
  const common_json* target = &root_;
  for (std::size_t at = 1; at < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    const std::string part =
        decode_pointer_part(std::string_view(pointer).substr(at + 1, end - at - 1));
    at = end;
    if (target->is_object() && target->contains(part)) {
      target = &target->at(part);
      continue;
    }
    const bool is_index =
        !part.empty() && part.size() < 6 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!target->is_array() || !is_index || std::stoul(part) >= target->size()) {
      return wrong(path, "'$ref' points to nothing: " + shown(pointer));
    }
    target = &target->at(std::size_t{std::stoul(part)});
  }
  return target;
}

Result<common_json> SchemaRewriter::rewrite_values(const common_json& schema,
                                                   const std::string& path) {
  const bool is_const = schema.contains("const");
  const char* own = is_const ? "const" : "enum";
  for (const auto& [name, other] : schema.items()) {
    if (name == own || name == "type" || !known_keywords().contains(name)) continue;
    GRAFT_RETURN_IF_ERROR(leave_out("'" + name + "' beside '" + own + "'", path));
  }
  common_json values = common_json::array();
  const common_json& given = schema.at(own);
  if (!is_const && (!given.is_array() || given.empty())) {
    return wrong(path, "'enum' must be an array that is not empty");
  }
  if (!is_const && given.size() > kMaxSchemaEnum) {
    return wrong(path, "'enum' has " + std::to_string(given.size()) + " values; the limit is " +
                           std::to_string(kMaxSchemaEnum));
  }
  const auto add = [&](const common_json& value) {
    if (!schema.contains("type") || has_one_of(value, schema.at("type"))) values.push_back(value);
  };
  if (is_const) {
    add(given);
  } else {
    for (const common_json& value : given) add(value);
  }
  if (values.empty()) return wrong(path, std::string("no value of '") + own + "' has the 'type'");
  common_json out = common_json::object();
  out["enum"] = std::move(values);
  return out;
}

Result<common_json> SchemaRewriter::rewrite_alternatives(const char* keyword,
                                                         const common_json& schema,
                                                         const std::string& path) {
  for (const auto& [name, other] : schema.items()) {
    if (name == keyword || !known_keywords().contains(name)) continue;
    GRAFT_RETURN_IF_ERROR(leave_out("'" + name + "' beside '" + keyword + "'", path));
  }
  const common_json& given = schema.at(keyword);
  if (!given.is_array() || given.empty() || given.size() > kMaxSchemaProperties) {
    return wrong(path, std::string("'") + keyword + "' must be an array of 1 to " +
                           std::to_string(kMaxSchemaProperties) + " schemas");
  }
  common_json alternatives = common_json::array();
  for (std::size_t i = 0; i < given.size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(const common_json alternative,
                           rewrite(given.at(i), path + "/" + keyword + "/" + std::to_string(i)));
    alternatives.push_back(alternative);
  }
  common_json out = common_json::object();
  out["anyOf"] = std::move(alternatives);
  return out;
}

Result<common_json> SchemaRewriter::rewrite_object(const common_json& schema,
                                                   const std::string& path) {
  common_json out = common_json::object();
  out["type"] = "object";
  GRAFT_RETURN_IF_ERROR(rewrite_properties(schema, path, out));
  GRAFT_RETURN_IF_ERROR(rewrite_additional(schema, path, out));
  return define(std::move(out));
}

Status SchemaRewriter::rewrite_properties(const common_json& schema, const std::string& path,
                                          common_json& out) {
  common_json properties = common_json::object();
  if (schema.contains("properties")) {
    if (!schema.at("properties").is_object()) return wrong(path, "'properties' must be an object");
    for (const auto& [name, property] : schema.at("properties").items()) {
      if (name.size() > kMaxPropertyNameBytes) {
        return wrong(path, "a property's name has more than " +
                               std::to_string(kMaxPropertyNameBytes) + " bytes");
      }
      GRAFT_ASSIGN_OR_RETURN(properties[name], rewrite(property, path + "/properties/" + name));
    }
  }
  common_json required = common_json::array();
  GRAFT_RETURN_IF_ERROR(rewrite_required(schema, path, properties, required));
  if (properties.size() > kMaxSchemaProperties) {
    return wrong(path, "an object has " + std::to_string(properties.size()) +
                           " properties; the limit is " + std::to_string(kMaxSchemaProperties));
  }
  if (schema.contains("properties") || !properties.empty()) {
    out["properties"] = std::move(properties);
    out["required"] = std::move(required);
  }
  return {};
}

// A name that is not declared must be there all the same: with any value, or with what
// additionalProperties says.
Status SchemaRewriter::rewrite_required(const common_json& schema, const std::string& path,
                                        common_json& properties, common_json& required) {
  if (!schema.contains("required")) return {};
  const common_json& names = schema.at("required");
  if (!names.is_array()) return wrong(path, "'required' must be an array of strings");
  for (const common_json& name : names) {
    if (!name.is_string()) return wrong(path, "'required' must be an array of strings");
    required.push_back(name);
    const auto text = name.get<std::string>();
    if (properties.contains(text)) continue;
    const bool more = schema.contains("additionalProperties");
    GRAFT_ASSIGN_OR_RETURN(properties[text],
                           rewrite(more ? schema.at("additionalProperties") : common_json(true),
                                   path + "/additionalProperties"));
  }
  return {};
}

// What is not declared may come if the schema says so. Beside names that the converter cannot
// exclude nothing more may come, which the schema allows too.
Status SchemaRewriter::rewrite_additional(const common_json& schema, const std::string& path,
                                          common_json& out) {
  const char* const keyword = "additionalProperties";
  const bool is_given = schema.contains(keyword);
  const bool is_boolean = is_given && schema.at(keyword).is_boolean();
  bool is_open =
      is_given ? !is_boolean || schema.at(keyword).get<bool>() : !out.contains("properties");
  if (out.contains("properties")) {
    for (const auto& [name, property] : out.at("properties").items()) {
      is_open = is_open && excludes_well(name);
    }
  }
  if (is_given && !is_boolean) {
    GRAFT_ASSIGN_OR_RETURN(common_json rewritten,
                           rewrite(schema.at(keyword), path + "/additionalProperties"));
    if (is_open) {
      out[keyword] = std::move(rewritten);
      return {};
    }
  }
  out[keyword] = is_open;
  return {};
}

Result<common_json> SchemaRewriter::rewrite_array(const common_json& schema,
                                                  const std::string& path) {
  if (schema.contains("prefixItems")) return rewrite_tuple(schema, "prefixItems", path);
  if (schema.contains("items") && schema.at("items").is_array()) {
    return rewrite_tuple(schema, "items", path);
  }
  common_json out = common_json::object();
  out["type"] = "array";
  const bool none = schema.contains("items") && schema.at("items").is_boolean() &&
                    !schema.at("items").get<bool>();
  GRAFT_RETURN_IF_ERROR(copy_count(schema, "minItems", path, out));
  GRAFT_RETURN_IF_ERROR(copy_count(schema, "maxItems", path, out));
  if (none) {
    out["maxItems"] = 0;
  } else if (schema.contains("items")) {
    GRAFT_ASSIGN_OR_RETURN(out["items"], rewrite(schema.at("items"), path + "/items"));
  }
  if (out.contains("minItems") && out.contains("maxItems") &&
      out.at("minItems").get<int>() > out.at("maxItems").get<int>()) {
    return wrong(path, "'minItems' is more than the items may be");
  }
  return out;
}

// Exactly the items that are listed, which is one of the arrays that the schema allows.
Result<common_json> SchemaRewriter::rewrite_tuple(const common_json& schema, const char* keyword,
                                                  const std::string& path) {
  const common_json& given = schema.at(keyword);
  if (!given.is_array() || given.empty() || given.size() > kMaxSchemaProperties) {
    return wrong(path, std::string("'") + keyword + "' must be an array of 1 to " +
                           std::to_string(kMaxSchemaProperties) + " schemas");
  }
  common_json counts = common_json::object();
  GRAFT_RETURN_IF_ERROR(copy_count(schema, "minItems", path, counts));
  GRAFT_RETURN_IF_ERROR(copy_count(schema, "maxItems", path, counts));
  const auto n_items = static_cast<int>(given.size());
  if (counts.value("minItems", 0) > n_items || counts.value("maxItems", n_items) < n_items) {
    GRAFT_RETURN_IF_ERROR(
        leave_out(std::string("another number of items than '") + keyword + "' lists", path));
  }
  common_json items = common_json::array();
  for (std::size_t i = 0; i < given.size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(const common_json item,
                           rewrite(given.at(i), path + "/" + keyword + "/" + std::to_string(i)));
    items.push_back(item);
  }
  common_json out = common_json::object();
  out["type"] = "array";
  out["items"] = std::move(items);
  return out;
}

Result<common_json> SchemaRewriter::rewrite_string(const common_json& schema,
                                                   const std::string& path) {
  if (schema.contains("pattern")) {
    GRAFT_RETURN_IF_ERROR(
        leave_out_all(schema, {"format", "minLength", "maxLength"}, path, "beside 'pattern'"));
    return rewrite_pattern(schema, path);
  }
  common_json out = common_json::object();
  out["type"] = "string";
  if (schema.contains("format")) {
    const common_json& format = schema.at("format");
    if (!format.is_string()) return wrong(path, "'format' must be a string");
    static const NameSet formats = {"date", "time", "date-time", "uuid"};
    if (formats.contains(format.get<std::string>())) {
      GRAFT_RETURN_IF_ERROR(
          leave_out_all(schema, {"minLength", "maxLength"}, path, "beside 'format'"));
      out["format"] = format;
      return out;
    }
    GRAFT_RETURN_IF_ERROR(leave_out("the format '" + shown(format.get<std::string>()) + "'", path));
  }
  GRAFT_RETURN_IF_ERROR(copy_count(schema, "minLength", path, out));
  GRAFT_RETURN_IF_ERROR(copy_count(schema, "maxLength", path, out));
  if (out.contains("minLength") && out.contains("maxLength") &&
      out.at("minLength").get<int>() > out.at("maxLength").get<int>()) {
    return wrong(path, "'minLength' is more than 'maxLength'");
  }
  return out;
}

Result<common_json> SchemaRewriter::rewrite_pattern(const common_json& schema,
                                                    const std::string& path) {
  const common_json& pattern = schema.at("pattern");
  if (!pattern.is_string()) return wrong(path, "'pattern' must be a string");
  const std::string name = result_.mark + std::to_string(result_.pattern_rules.size()) + "p";
  auto rule = regex_to_gbnf(pattern.get<std::string>(), RegexUse::kJsonString, name);
  if (rule) {
    result_.pattern_rules.push_back(std::move(*rule));
    return stand_in(result_.pattern_rules.size() - 1, 'p');
  }
  const Error& error = rule.error();
  if (error.code != ErrorCode::kNotSupported || !lenient_) {
    return Error{
        error.code, "the JSON schema at " + shown(path) + ": 'pattern': " + error.message, {}};
  }
  GRAFT_RETURN_IF_ERROR(leave_out("'pattern'", path));
  common_json out = common_json::object();
  out["type"] = "string";
  return out;
}

Result<common_json> SchemaRewriter::rewrite_integer(const common_json& schema,
                                                    const std::string& path) {
  common_json bounds = common_json::object();
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    GRAFT_RETURN_IF_ERROR(copy_bound(schema, keyword, path, bounds));
  }
  common_json out = common_json::object();
  out["type"] = "integer";
  const auto has = [&](const char* keyword) { return bounds.contains(keyword); };
  const auto bound = [&](const char* keyword) { return bounds.at(keyword).get<double>(); };
  if (has("minimum") || has("exclusiveMinimum")) {
    double least = has("minimum") ? std::ceil(bound("minimum")) : -INFINITY;
    if (has("exclusiveMinimum")) {
      least = std::max(least, std::floor(bound("exclusiveMinimum")) + 1);
    }
    out["minimum"] = static_cast<std::int64_t>(least);
  }
  if (has("maximum") || has("exclusiveMaximum")) {
    double most = has("maximum") ? std::floor(bound("maximum")) : INFINITY;
    if (has("exclusiveMaximum")) most = std::min(most, std::ceil(bound("exclusiveMaximum")) - 1);
    out["maximum"] = static_cast<std::int64_t>(most);
  }
  if (out.contains("minimum") && out.contains("maximum") &&
      out.at("minimum").get<std::int64_t>() > out.at("maximum").get<std::int64_t>()) {
    return wrong(path, "no integer lies between the bounds");
  }
  return out;
}

Status SchemaRewriter::copy_count(const common_json& schema, const char* keyword,
                                  const std::string& path, common_json& out) {
  if (!schema.contains(keyword)) return {};
  const common_json& value = schema.at(keyword);
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= 0) || number != std::floor(number)) {
    return wrong(path, std::string("'") + keyword + "' must be an integer of at least 0");
  }
  if (number > kMaxRepetitions) {
    return wrong(path, std::string("'") + keyword + "' is more than the limit of " +
                           std::to_string(kMaxRepetitions));
  }
  out[keyword] = static_cast<int>(number);
  return {};
}

Status SchemaRewriter::copy_bound(const common_json& schema, const char* keyword,
                                  const std::string& path, common_json& out) {
  constexpr double kMaxBound = 1e15;  // as many digits as an integer gets
  if (!schema.contains(keyword)) return {};
  const common_json& value = schema.at(keyword);
  if (!value.is_number()) return wrong(path, std::string("'") + keyword + "' must be a number");
  if (!(std::abs(value.get<double>()) <= kMaxBound)) {
    return wrong(path, std::string("'") + keyword + "' must be between -1e15 and 1e15");
  }
  out[keyword] = value;
  return {};
}

}  // namespace graft
