// FileBytes: a whole regular file, mapped read-only. Devices, FIFOs and directories are refused.
// The bytes stay valid until destruction; if the file shrinks meanwhile, access faults, so files
// that others may change are copied first (read_file).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace graft {

class FileBytes {
 public:
  // Errors: kNotFound when it cannot be opened, kInvalidArgument when it is not a regular file or
  // larger than `max_bytes`.
  static Result<FileBytes> open(const std::string& path, std::uint64_t max_bytes);

  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  FileBytes(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The whole file in memory of our own. Errors as FileBytes::open.
Result<std::vector<std::byte>> read_file(const std::string& path, std::uint64_t max_bytes);

// The same of an open file, from its beginning; `shown` is its name in messages. Keeps `fd` open.
Result<std::vector<std::byte>> read_open_file(int fd, const std::string& shown,
                                              std::uint64_t max_bytes);

}  // namespace graft
