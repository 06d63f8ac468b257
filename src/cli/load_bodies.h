// LoadBodies: the requests of `graft bench serve`. Request i is the same in every run with the same
// seed, and its prompt differs from all others after the common beginning, so that a prefix cache
// helps only where it is meant to. Immutable; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "cli/command.h"

namespace graft::cli {

class LoadBodies {
 public:
  // Requires: `command` outlives this.
  explicit LoadBodies(const BenchServeCommand& command) : command_(command) {}

  // JSON. Request i asks for the adapter i, round and round.
  std::string body(std::size_t i) const;
  // The path that takes these bodies, below the URL's own.
  const char* path() const;

 private:
  std::string text(std::size_t i) const;

  const BenchServeCommand& command_;
};

}  // namespace graft::cli
