// ConfinedFiles: the files beneath one root directory, for paths that clients name. A path is
// walked part by part from the root's descriptor; no symbolic link is followed, nothing but
// directories and regular files is opened, and ".." does not exist. What is forbidden looks like
// what is absent. The root itself is the operator's and may be reached through links. Immutable;
// any thread; blocks on the disk.
#pragma once

#include <string>
#include <vector>

#include "base/descriptor.h"
#include "modules/formats/file_source.h"

namespace graft {

class ConfinedFiles final : public FileSource {
 public:
  // Errors: kNotFound when `root` is no directory that can be opened.
  static Result<ConfinedFiles> open(const std::string& root);

  const std::string& root() const { return root_; }

  // What a client's path means beneath the root: a relative path without empty parts, or an
  // absolute one that begins with the root's. Errors: kNotFound for all others.
  Result<std::string> relative(const std::string& path) const;

  // The functions below take relative() paths, and refuse others as absent.
  Kind kind(const std::string& path) const override;
  Result<std::vector<std::string>> names_in(const std::string& directory,
                                            std::size_t max_names) const override;
  Result<std::vector<std::byte>> read(const std::string& path,
                                      std::uint64_t max_bytes) const override;

  // Differs when a file, or the directory with its files and their directories, has been changed,
  // replaced or touched. 64 hex digits. Errors: kNotFound.
  Result<std::string> signature(const std::string& path) const;

 private:
  ConfinedFiles(Descriptor directory, std::string root, std::string given)
      : directory_(std::move(directory)), root_(std::move(root)), given_(std::move(given)) {}
  // A directory or regular file; not open when there is none.
  Descriptor open_beneath(const std::string& path) const;

  Descriptor directory_;
  std::string root_;   // canonical
  std::string given_;  // as the operator wrote it
};

}  // namespace graft
