// ModuleVersion: immutable content under a name, identified by its digest; and what a request holds
// of it. Attachment = version, scale, start position; AttachmentSet = the ordered attachments of
// one request. Plain values over shared immutable content; any thread may copy and read them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "modules/adapter.h"
#include "modules/residency/resident_adapter.h"

namespace graft {

struct ModuleVersion {
  std::string name;  // as registered; unique among live modules
  std::string path;  // where it was loaded from
  // llama-server's adapter id: from registration on it belongs to the name, also when the version
  // is replaced, and no other module ever gets it. -1 = not registered.
  std::int64_t id = -1;
  std::int64_t created_unix_s = 0;
  double load_seconds = 0;                          // reading, checking and packing
  std::shared_ptr<const Adapter> description;       // without factor bytes once resident
  std::shared_ptr<const ResidentAdapter> resident;  // what kernels read

  const std::string& digest() const { return resident->digest(); }
};

struct Attachment {
  std::shared_ptr<const ModuleVersion> module;  // the lease
  float scale = 1.0F;                           // multiplies each term's own scale
  std::int32_t start_position = 0;              // first position at which it acts
};

struct AttachmentSet {
  std::vector<Attachment> attachments;  // in order of application

  bool empty() const { return attachments.empty(); }
};

// Identity of everything that shapes a request's keys and values besides its tokens: digests,
// scales, positions, order. Equal sets have equal fingerprints; 64 hex digits, "" for no module.
std::string fingerprint(const AttachmentSet& set);

}  // namespace graft
