// Where tests find models and adapters: in the source tree, or in the cache that the set-up script
// fills ($GRAFT_CACHE, else ~/.cache/graft).
#pragma once

#include <cstdlib>
#include <string>

namespace graft {

inline std::string source_file(const std::string& path) {
  return std::string(GRAFT_SOURCE_DIR) + "/" + path;
}

inline std::string cached_model(const std::string& name) {
  const char* cache = std::getenv("GRAFT_CACHE");
  const char* home = std::getenv("HOME");
  const std::string folder = cache != nullptr  ? cache
                             : home != nullptr ? std::string(home) + "/.cache/graft"
                                               : ".";
  return folder + "/models/" + name;
}

}  // namespace graft
