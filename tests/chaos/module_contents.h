// ModuleContents: adapter files beneath a directory, and of each content a version of its own that
// no store knows. An answer names what made it by digest; here is what must make the same alone.
// And files that no store may accept. Filled by one thread, then any thread reads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "modules/base_model.h"
#include "modules/formats/format_test_support.h"
#include "modules/module_version.h"
#include "support/random_adapter.h"

namespace graft {

class ModuleContents {
 public:
  struct Content {
    std::string path;  // beneath root(): a GGUF file, or a directory in PEFT's form
    std::shared_ptr<const ModuleVersion> version;
  };

  // The base outlives it.
  explicit ModuleContents(const BaseModel& base) : base_(base) {}

  void add_random(const RandomAdapterOptions& options);
  void add_copy(const std::string& directory);
  // A file cut short, one of noise, one for another base, one that overflows when it is tried.
  void add_broken();

  std::string root() const { return directory_.path(); }
  const std::vector<Content>& all() const { return contents_; }
  const std::vector<std::string>& broken() const { return broken_; }
  // Null for a digest of none of them.
  std::shared_ptr<const ModuleVersion> find(const std::string& digest) const;

 private:
  void add(const std::string& path);

  const BaseModel& base_;
  format_test::TemporaryDirectory directory_;
  std::vector<Content> contents_;
  std::vector<std::string> broken_;
};

}  // namespace graft
