#include "modules/formats/file_source.h"

#include <filesystem>
#include <system_error>

#include "base/file_bytes.h"

namespace graft {

namespace fs = std::filesystem;

FileSource::Kind PlainFiles::kind(const std::string& path) const {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return Kind::kAbsent;
  if (fs::is_directory(status)) return Kind::kDirectory;
  return fs::is_regular_file(status) ? Kind::kFile : Kind::kOther;
}

Result<std::vector<std::string>> PlainFiles::names_in(const std::string& directory,
                                                      std::size_t max_names) const {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (names.size() == max_names) break;
    names.push_back(entries->path().filename().string());
  }
  if (error) return not_found("cannot look through '" + directory + "': " + error.message());
  return names;
}

Result<std::vector<std::byte>> PlainFiles::read(const std::string& path,
                                                std::uint64_t max_bytes) const {
  return read_file(path, max_bytes);
}

}  // namespace graft
