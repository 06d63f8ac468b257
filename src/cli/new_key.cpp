// `graft keys new`: a random API key for the one who gets it, its hash for the server's file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "api/keys/key_file.h"
#include "api/keys/key_ring.h"
#include "base/file_bytes.h"
#include "base/secret.h"
#include "cli/loading.h"
#include "cli/run.h"

namespace graft::cli {
namespace {

constexpr std::size_t kKeyBytes = 16;  // 128 bits cannot be guessed

// "" when there is no such file.
Result<std::string> present_text(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return std::string();
  GRAFT_ASSIGN_OR_RETURN(const auto bytes, read_file(path, api::kMaxKeyFileBytes));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// The file as it would be with `key` must be one that a server takes.
Status check_file(const std::string& text, const std::string& path, const api::ApiKey& key) {
  GRAFT_ASSIGN_OR_RETURN(auto keys, api::parse_key_file(text, path));
  keys.push_back(key);
  const auto ring = api::KeyRing::create(std::move(keys), true, {});
  return ring ? Status() : Status(invalid_argument(path + ": " + ring.error().message));
}

Status append_line(const std::string& path, const std::string& line) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const bool written =
      fd >= 0 && ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const int code = errno;
  const bool closed = fd >= 0 && ::close(fd) == 0;
  if (written && closed) return {};
  return Error{ErrorCode::kUnavailable, "cannot write '" + path + "': " + std::strerror(code), {}};
}

Result<std::string> make_key(const NewKeyCommand& command) {
  std::string text = "gk-" + random_hex(kKeyBytes);
  api::ApiKey key = command.key;
  key.hash = api::KeyHash::of(text);
  GRAFT_ASSIGN_OR_RETURN(const std::string present, present_text(command.file));
  GRAFT_RETURN_IF_ERROR(check_file(present, command.file, key));
  const bool is_cut = !present.empty() && !present.ends_with('\n');
  GRAFT_RETURN_IF_ERROR(
      append_line(command.file, (is_cut ? "\n" : "") + api::key_file_line(key) + "\n"));
  return text;
}

}  // namespace

int run(const NewKeyCommand& command) {
  const auto key = make_key(command);
  if (!key) return report(key.error());
  std::puts(key->c_str());
  return kExitOk;
}

}  // namespace graft::cli
