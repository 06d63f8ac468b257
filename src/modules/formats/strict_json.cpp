#include "modules/formats/strict_json.h"

#include <unordered_set>
#include <utility>
#include <vector>

namespace graft {
namespace {

// Walks the document without building it and stops at the first broken rule.
class LimitCheck : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit LimitCheck(const JsonLimits& limits) : limits_(limits) {}

  const std::string& reason() const { return reason_; }

  bool null() override { return count_value(); }
  bool boolean(bool) override { return count_value(); }
  bool number_integer(number_integer_t) override { return count_value(); }
  bool number_unsigned(number_unsigned_t) override { return count_value(); }
  bool number_float(number_float_t, const string_t&) override { return count_value(); }
  bool string(string_t&) override { return count_value(); }
  bool binary(binary_t&) override { return fail("holds binary values"); }

  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (names_.back().size() >= limits_.max_names) {
      return fail("more than " + std::to_string(limits_.max_names) + " names in one object");
    }
    if (names_.back().insert(name).second) return true;
    return fail("the name '" + name + "' stands twice");
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return fail("not valid JSON at byte " + std::to_string(position));
  }

 private:
  bool fail(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  bool count_value() {
    if (++n_values_ <= limits_.max_values) return true;
    return fail("more than " + std::to_string(limits_.max_values) + " values");
  }

  bool open() {
    if (names_.size() >= limits_.max_depth) {
      return fail("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    names_.emplace_back();
    return count_value();
  }

  bool close() {
    names_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::size_t n_values_ = 0;
  std::vector<std::unordered_set<std::string>> names_;  // of the open objects and arrays
  std::string reason_;
};

template <typename Json>
Result<Json> parse(std::string_view text, const JsonLimits& limits, const std::string& what) {
  LimitCheck check(limits);
  if (!nlohmann::json::sax_parse(text, &check)) {
    return data_corrupt(what + ": " + check.reason());
  }
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return data_corrupt(what + ": not valid JSON");
  return document;
}

}  // namespace

Result<nlohmann::json> parse_strict_json(std::string_view text, const JsonLimits& limits,
                                         const std::string& what) {
  return parse<nlohmann::json>(text, limits, what);
}

Result<nlohmann::ordered_json> parse_strict_ordered_json(std::string_view text,
                                                         const JsonLimits& limits,
                                                         const std::string& what) {
  return parse<nlohmann::ordered_json>(text, limits, what);
}

}  // namespace graft
