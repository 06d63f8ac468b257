#include "modules/store/failed_loads.h"

#include <algorithm>

namespace graft {

void FailedLoads::add(const std::string& path, const std::string& signature, const Error& error,
                      Clock::time_point now) {
  std::erase_if(entries_, [&path](const Entry& entry) { return entry.path == path; });
  if (entries_.size() == kMaxEntries) entries_.pop_front();
  entries_.push_back({path, signature, error, now + memory_});
}

const Error* FailedLoads::find(const std::string& path, const std::string& signature,
                               Clock::time_point now) {
  while (!entries_.empty() && entries_.front().until <= now) entries_.pop_front();
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.path == path && entry.signature == signature;
  });
  return found == entries_.end() ? nullptr : &found->error;
}

}  // namespace graft
