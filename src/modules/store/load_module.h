// From a name and a path to a ModuleVersion that requests may hold: reads, packs, and lets go of
// the file's factor bytes, so that a module costs about its factors once. Whether the sites of the
// running model take it is the engine's to say: call Grafter::check_attachable() before the name
// is announced. Any thread; blocks on the disk.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"
#include "modules/base_model.h"
#include "modules/module_version.h"

namespace graft {

struct ModuleSource {
  std::string name;
  std::string path;  // a PEFT directory or a GGUF file
};

// A name is one part or two with a '/' between them; a part is 1 to 64 of a-z 0-9 . _ - and begins
// and ends with a letter or digit. Two dots in a row are refused.
Status check_module_name(const std::string& name);

// Every error names the module and the file.
Result<std::shared_ptr<const ModuleVersion>> load_module(const ModuleSource& source,
                                                         const BaseModel& base,
                                                         Precision precision);

// The version that a resident copy of `adapter` makes under a name; loading began at `begin`.
std::shared_ptr<const ModuleVersion> make_version(const ModuleSource& source,
                                                  const Adapter& adapter,
                                                  std::shared_ptr<const ResidentAdapter> resident,
                                                  std::chrono::steady_clock::time_point begin);

// `error` with the module and its file in front, unless the message names the file already.
Error about_module(const ModuleSource& source, Error error);

}  // namespace graft
