// FileSource: where the files of an adapter are read from. PlainFiles takes paths of this process
// as they are, for operators who may read what the process may; store/ has one that stays beneath a
// root, for paths that clients name. Implementations are immutable; any thread; they block on the
// disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace graft {

class FileSource {
 public:
  enum class Kind { kAbsent, kFile, kDirectory, kOther };

  virtual ~FileSource() = default;

  virtual Kind kind(const std::string& path) const = 0;
  // The names in a directory, at most `max_names` of them, in no order.
  virtual Result<std::vector<std::string>> names_in(const std::string& directory,
                                                    std::size_t max_names) const = 0;
  // The whole file in memory of our own: nobody can change it between two looks. Regular files
  // only. Errors: kNotFound, kInvalidArgument for what is no regular file or too large.
  virtual Result<std::vector<std::byte>> read(const std::string& path,
                                              std::uint64_t max_bytes) const = 0;
};

class PlainFiles final : public FileSource {
 public:
  Kind kind(const std::string& path) const override;
  Result<std::vector<std::string>> names_in(const std::string& directory,
                                            std::size_t max_names) const override;
  Result<std::vector<std::byte>> read(const std::string& path,
                                      std::uint64_t max_bytes) const override;
};

}  // namespace graft
