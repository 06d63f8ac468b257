#include "scheduler/prefix_key.h"

#include <cstdint>
#include <set>

#include "base/sized_text.h"

namespace graft {

namespace {

// Where an attachment begins to act does not matter to the tokens on which it acts.
std::string role_at(const AttachmentSet& attachments, std::int32_t position) {
  AttachmentSet acting;
  for (const Attachment& attachment : attachments.attachments) {
    if (attachment.start_position > position) continue;
    acting.attachments.push_back(attachment);
    acting.attachments.back().start_position = 0;
  }
  return fingerprint(acting);
}

}  // namespace

PrefixKey make_prefix_key(std::string_view tenant, std::string_view salt,
                          std::string_view computed_by, const AttachmentSet& attachments) {
  PrefixKey key;
  append_sized(key.root, tenant);
  append_sized(key.root, salt);
  append_sized(key.root, computed_by);
  std::set<std::int32_t> begins = {0};
  for (const Attachment& attachment : attachments.attachments) {
    begins.insert(attachment.start_position);
  }
  for (const std::int32_t begin : begins) {
    key.roles.push_back({begin, role_at(attachments, begin)});
  }
  return key;
}

}  // namespace graft
