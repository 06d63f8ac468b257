// SchemaRewriter: checks a JSON schema against our limits and against what llama.cpp's converter
// can enforce, and rewrites it into the part that the converter gets right: one keyword group per
// object, no annotations, every object a definition of its own, no references, no patterns.
//
// Why: the converter drops what it does not know without a word, expands some schemas without
// bound, gives rules names that can collide, and follows references until the stack ends. Inside
// text/ only (it shows llama.cpp's JSON). Used once, by one thread; borrows the schema. llama.cpp's
// JSON may throw.
#pragma once

#include <json.h>

#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace graft {

inline constexpr std::size_t kMaxSchemaProperties = 256;  // of one object
inline constexpr std::size_t kMaxSchemaEnum = 1000;
inline constexpr std::size_t kMaxSchemaParts = 2000;  // schemas inside the schema, all counted
inline constexpr std::size_t kMaxPropertyNameBytes = 256;

// Inside a definition, a string constant names what stands in its place: `mark`, a number and "r"
// for that definition, or "p" for that pattern rule. No other text in the schema holds the mark.
struct RewrittenSchema {
  std::string mark;
  std::vector<common_json> definitions;    // without references; the first is the whole schema
  std::vector<std::string> pattern_rules;  // in GBNF; rule i is named as its stand-in
  std::vector<std::string> ignored_keywords;
};

class SchemaRewriter {
 public:
  SchemaRewriter(const common_json& root, bool lenient) : root_(root), lenient_(lenient) {}

  Result<RewrittenSchema> run();

 private:
  using Names = std::initializer_list<const char*>;

  Result<common_json> rewrite(const common_json& schema, const std::string& path);
  Result<common_json> rewrite_node(const common_json& schema, const std::string& path);
  Status check_keywords(const common_json& schema, const std::string& path);
  Result<common_json> rewrite_type(const std::string& type, const common_json& schema,
                                   const std::string& path);
  Result<common_json> rewrite_types(const common_json& schema, const std::string& path);
  Result<common_json> rewrite_reference(const common_json& schema, const std::string& path);
  Result<common_json> rewrite_values(const common_json& schema, const std::string& path);
  Result<common_json> rewrite_alternatives(const char* keyword, const common_json& schema,
                                           const std::string& path);
  Result<common_json> rewrite_object(const common_json& schema, const std::string& path);
  Status rewrite_properties(const common_json& schema, const std::string& path, common_json& out);
  Status rewrite_required(const common_json& schema, const std::string& path,
                          common_json& properties, common_json& required);
  Status rewrite_additional(const common_json& schema, const std::string& path, common_json& out);
  Result<common_json> rewrite_array(const common_json& schema, const std::string& path);
  Result<common_json> rewrite_tuple(const common_json& schema, const char* keyword,
                                    const std::string& path);
  Result<common_json> rewrite_string(const common_json& schema, const std::string& path);
  Result<common_json> rewrite_pattern(const common_json& schema, const std::string& path);
  Result<common_json> rewrite_integer(const common_json& schema, const std::string& path);

  Status copy_count(const common_json& schema, const char* keyword, const std::string& path,
                    common_json& out);
  Status copy_bound(const common_json& schema, const char* keyword, const std::string& path,
                    common_json& out);
  common_json define(common_json definition);
  common_json stand_in(std::size_t index, char kind) const;
  // Refuses `what`, or remembers that it is ignored.
  Status leave_out(const std::string& what, const std::string& path);
  Status leave_out_all(const common_json& schema, Names keywords, const std::string& path,
                       const std::string& why);
  Result<const common_json*> find_target(const std::string& pointer, const std::string& path) const;

  const common_json& root_;
  const bool lenient_;
  RewrittenSchema result_;
  std::size_t n_parts_ = 0;
  std::map<std::string, std::size_t> references_;  // pointer -> its definition
  std::vector<std::string> pending_;               // pointers not yet rewritten
};

}  // namespace graft
