#include "modules/store/load_module.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "modules/formats/read_adapter.h"

namespace graft {
namespace {

constexpr std::size_t kMaxPartBytes = 64;

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool is_name_part(std::string_view part) {
  if (part.empty() || part.size() > kMaxPartBytes) return false;
  if (!is_letter_or_digit(part.front()) || !is_letter_or_digit(part.back())) return false;
  if (part.find("..") != std::string_view::npos) return false;
  return std::all_of(part.begin(), part.end(), [](char c) {
    return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-';
  });
}

// Names come from outside: a message shows no control characters and not more than a line.
std::string shown(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, 2 * kMaxPartBytes)) {
    text.push_back(c >= 0x20 && c < 0x7F ? c : '?');
  }
  return text;
}

// The resident copy holds the values; what stays is what reports and messages need.
std::shared_ptr<const Adapter> without_factor_bytes(const Adapter& adapter) {
  auto described = std::make_shared<Adapter>();
  described->digest = adapter.digest;
  described->architecture = adapter.architecture;
  described->report = adapter.report;
  described->terms.reserve(adapter.terms.size());
  for (const LoraTerm& term : adapter.terms) {
    LoraTerm shape;
    shape.site = term.site;
    shape.n_in = term.n_in;
    shape.n_out = term.n_out;
    shape.out_offset = term.out_offset;
    shape.rank = term.rank;
    shape.n_experts = term.n_experts;
    shape.scale = term.scale;
    shape.a = {term.a.type, term.a.n_rows, term.a.n_cols, {}};
    shape.b = {term.b.type, term.b.n_rows, term.b.n_cols, {}};
    described->terms.push_back(std::move(shape));
  }
  return described;
}

std::int64_t now_unix_s() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count();
}

}  // namespace

Status check_module_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  const bool valid = slash == std::string::npos
                         ? is_name_part(name)
                         : is_name_part(std::string_view(name).substr(0, slash)) &&
                               is_name_part(std::string_view(name).substr(slash + 1));
  if (valid) return {};
  return invalid_argument("'" + shown(name) +
                          "' is not a module name: 1 to 64 of a-z 0-9 . _ - that begin and end "
                          "with a letter or digit; one '/' may join two such parts");
}

Error about_module(const ModuleSource& source, Error error) {
  std::string subject = "module '" + shown(source.name) + "'";
  if (error.message.find(source.path) == std::string::npos) subject += " (" + source.path + ")";
  error.message = subject + ": " + error.message;
  return error;
}

Result<std::shared_ptr<const ModuleVersion>> load_module(const ModuleSource& source,
                                                         const BaseModel& base,
                                                         Precision precision) {
  GRAFT_RETURN_IF_ERROR(check_module_name(source.name));
  const auto begin = std::chrono::steady_clock::now();
  auto adapter = read_adapter(source.path, base);
  if (!adapter) return about_module(source, std::move(adapter).error());
  auto resident = ResidentAdapter::pack(*adapter, precision);
  if (!resident) return about_module(source, std::move(resident).error());
  return make_version(source, **adapter, std::move(*resident), begin);
}

std::shared_ptr<const ModuleVersion> make_version(const ModuleSource& source,
                                                  const Adapter& adapter,
                                                  std::shared_ptr<const ResidentAdapter> resident,
                                                  std::chrono::steady_clock::time_point begin) {
  auto version = std::make_shared<ModuleVersion>();
  version->name = source.name;
  version->path = source.path;
  version->created_unix_s = now_unix_s();
  version->description = without_factor_bytes(adapter);
  version->resident = std::move(resident);
  version->load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return version;
}

}  // namespace graft
