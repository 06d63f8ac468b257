#include "modules/store/confined_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/file_bytes.h"
#include "base/sha256.h"

namespace graft {
namespace {

constexpr std::size_t kMaxPathBytes = 1024;
constexpr std::size_t kMaxParts = 16;
constexpr std::size_t kMaxSignedNames = 1000;  // of a directory
constexpr int kSignedDepth = 2;                // PEFT saves a named adapter one directory deeper

// The one answer to whatever cannot be had.
Error absent(std::string_view path) {
  std::string shown;
  for (const char c : path.substr(0, 200)) {
    shown.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c);
  }
  return not_found("'" + shown + "' does not exist");
}

// False for "..", for too much, and for an embedded NUL, which would cut the path short.
bool split(std::string_view path, std::vector<std::string>& parts) {
  parts.clear();
  if (path.size() > kMaxPathBytes || path.find('\0') != std::string_view::npos) return false;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part == "..") return false;
    if (!part.empty() && part != ".") parts.emplace_back(part);
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return !parts.empty() && parts.size() <= kMaxParts;
}

// One part below `directory`. Looks before it opens: opening a device can have effects.
Descriptor open_part(int directory, const std::string& part) {
  struct stat before = {};
  if (::fstatat(directory, part.c_str(), &before, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (!S_ISREG(before.st_mode) && !S_ISDIR(before.st_mode)) return {};
  Descriptor opened(
      ::openat(directory, part.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat after = {};
  if (!opened.is_open() || ::fstat(opened.get(), &after) != 0) return {};
  const bool same = before.st_dev == after.st_dev && before.st_ino == after.st_ino;
  return same ? std::move(opened) : Descriptor();
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// Reads through a descriptor of its own, so that `fd` keeps its place.
bool read_names(int fd, std::size_t max_names, std::vector<std::string>& names) {
  Descriptor again(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again.is_open()) return false;
  const std::unique_ptr<DIR, CloseDirectory> directory(::fdopendir(again.get()));
  if (directory == nullptr) return false;
  again.release();  // the DIR owns it
  while (names.size() < max_names) {
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return true;
}

template <typename T>
void add_value(Sha256& hash, const T& value) {
  hash.update(std::as_bytes(std::span(&value, 1)));
}

void add_stat(Sha256& hash, const struct stat& info) {
  add_value(hash, info.st_dev);
  add_value(hash, info.st_ino);
  add_value(hash, info.st_mode);
  add_value(hash, info.st_size);
  add_value(hash, info.st_mtim.tv_sec);
  add_value(hash, info.st_mtim.tv_nsec);
}

// Links and special files count as they are, unopened.
void add_entries(Sha256& hash, int directory, int depth) {
  std::vector<std::string> names;
  read_names(directory, kMaxSignedNames, names);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    struct stat info = {};
    if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    hash.update(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
    add_stat(hash, info);
    if (depth <= 1 || !S_ISDIR(info.st_mode)) continue;
    const Descriptor below = open_part(directory, name);
    if (below.is_open()) add_entries(hash, below.get(), depth - 1);
  }
}

}  // namespace

Result<ConfinedFiles> ConfinedFiles::open(const std::string& root) {
  Descriptor directory(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<char, decltype(&std::free)> canonical(::realpath(root.c_str(), nullptr),
                                                              &std::free);
  if (!directory.is_open() || canonical == nullptr) {
    return not_found("'" + root + "' is not a directory that can be read");
  }
  std::string given = root;
  while (given.size() > 1 && given.back() == '/') given.pop_back();
  return ConfinedFiles(std::move(directory), canonical.get(), std::move(given));
}

Result<std::string> ConfinedFiles::relative(const std::string& path) const {
  std::string_view rest = path;
  if (rest.starts_with('/')) {
    const auto is_below = [&rest](const std::string& root) {
      return rest.starts_with(root) && rest.substr(root.size()).starts_with('/');
    };
    const std::string* root = is_below(root_) ? &root_ : is_below(given_) ? &given_ : nullptr;
    if (root == nullptr) return absent(path);
    rest.remove_prefix(root->size());
  }
  std::vector<std::string> parts;
  if (!split(rest, parts)) return absent(path);
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : "/") + part;
  return joined;
}

Descriptor ConfinedFiles::open_beneath(const std::string& path) const {
  std::vector<std::string> parts;
  if (path.starts_with('/') || !split(path, parts)) return {};
  Descriptor at;
  for (const std::string& part : parts) {
    at = open_part(at.is_open() ? at.get() : directory_.get(), part);
    if (!at.is_open()) return {};
  }
  return at;
}

FileSource::Kind ConfinedFiles::kind(const std::string& path) const {
  const Descriptor opened = open_beneath(path);
  struct stat info = {};
  if (!opened.is_open() || ::fstat(opened.get(), &info) != 0) return Kind::kAbsent;
  return S_ISDIR(info.st_mode) ? Kind::kDirectory : Kind::kFile;
}

Result<std::vector<std::string>> ConfinedFiles::names_in(const std::string& directory,
                                                         std::size_t max_names) const {
  const Descriptor opened = open_beneath(directory);
  std::vector<std::string> names;
  if (!opened.is_open() || !read_names(opened.get(), max_names, names)) return absent(directory);
  return names;
}

Result<std::vector<std::byte>> ConfinedFiles::read(const std::string& path,
                                                   std::uint64_t max_bytes) const {
  const Descriptor opened = open_beneath(path);
  if (!opened.is_open()) return absent(path);
  return read_open_file(opened.get(), path, max_bytes);
}

Result<std::string> ConfinedFiles::signature(const std::string& path) const {
  const Descriptor opened = open_beneath(path);
  struct stat info = {};
  if (!opened.is_open() || ::fstat(opened.get(), &info) != 0) return absent(path);
  Sha256 hash;
  add_stat(hash, info);
  if (S_ISDIR(info.st_mode)) add_entries(hash, opened.get(), kSignedDepth);
  return hash.finish_hex();
}

}  // namespace graft
