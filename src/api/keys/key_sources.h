// Where the keys of a server come from: the command line and a file. load_key_ring() brings them
// together; main.cpp calls it at the start and again when the file is to be read anew.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/keys/key_ring.h"
#include "base/result.h"

namespace graft::api {

struct KeySources {
  std::vector<std::string> keys;        // as clients send them
  std::vector<std::string> admin_keys;  // likewise
  std::string file;                     // "" = none

  bool empty() const { return keys.empty() && admin_keys.empty() && file.empty(); }
  // Whether a client without a key gets nothing.
  bool closes_inference() const { return !keys.empty() || !file.empty(); }
};

// Errors name the file and the line, or the flag. `before`: the ring that the new one replaces.
Result<std::shared_ptr<const KeyRing>> load_key_ring(const KeySources& sources,
                                                     const KeyRing& before);

}  // namespace graft::api
