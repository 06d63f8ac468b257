// What every subcommand with a model does first: load it, make an engine, load the modules, and try
// each of them in a step of one row and of many before anyone relies on it. Blocks for seconds; the
// calling thread owns the result.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "modules/module_version.h"

namespace graft::cli {

struct LoadedModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;                             // borrows the model
  std::vector<std::shared_ptr<const ModuleVersion>> modules;  // in the order of the flags
};

// Shows progress on standard error. Errors name the file or module; kCancelled when a stop signal
// comes meanwhile.
Result<LoadedModel> load(const ModelFlags& flags);

// A step of one row and one of up to 64 with the module. Requires: a free sequence.
Status warm_up(Engine& engine, const ModuleVersion& module);

// `error` as one line: "graft: ...". Ends with the exit status to return.
int report(const Error& error);

}  // namespace graft::cli
