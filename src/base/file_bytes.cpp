#include "base/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"

namespace graft {
namespace {

std::string system_message(int code) { return std::strerror(code); }

// Opens without blocking on a FIFO, and tells the size of a regular file.
Result<std::size_t> checked_size(int fd, const std::string& path, std::uint64_t max_bytes) {
  if (fd < 0) return not_found("cannot open '" + path + "': " + system_message(errno));
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    return not_found("cannot read '" + path + "': " + system_message(errno));
  }
  if (!S_ISREG(info.st_mode)) return invalid_argument("'" + path + "' is not a regular file");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > max_bytes) {
    return invalid_argument("'" + path + "' has " + std::to_string(size) + " bytes; the limit is " +
                            std::to_string(max_bytes));
  }
  return static_cast<std::size_t>(size);
}

}  // namespace

Result<FileBytes> FileBytes::open(const std::string& path, std::uint64_t max_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  GRAFT_ASSIGN_OR_RETURN(const std::size_t size, checked_size(file.get(), path, max_bytes));
  if (size == 0) return FileBytes(nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    return Error{ErrorCode::kInternal, "cannot map '" + path + "': " + system_message(errno), {}};
  }
  return FileBytes(static_cast<const std::byte*>(data), size);
}

FileBytes::FileBytes(FileBytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

FileBytes::~FileBytes() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::vector<std::byte>> read_file(const std::string& path, std::uint64_t max_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return read_open_file(file.get(), path, max_bytes);
}

Result<std::vector<std::byte>> read_open_file(int fd, const std::string& shown,
                                              std::uint64_t max_bytes) {
  GRAFT_ASSIGN_OR_RETURN(const std::size_t size, checked_size(fd, shown, max_bytes));
  std::vector<std::byte> bytes(size);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::pread(fd, bytes.data() + done, size - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return data_corrupt("'" + shown + "' ended after " + std::to_string(done) + " bytes");
    }
    done += static_cast<std::size_t>(n);
  }
  return bytes;
}

}  // namespace graft
