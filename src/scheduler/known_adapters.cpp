#include "scheduler/known_adapters.h"

namespace graft {

void KnownAdapters::add(const AttachmentSet& set) {
  for (const Attachment& attachment : set.attachments) {
    const auto& resident = attachment.module->resident;
    known_.emplace(resident.get(), resident);
  }
}

void KnownAdapters::release_unused() {
  std::erase_if(known_, [&](const auto& entry) {
    if (entry.second.use_count() > 1) return false;
    forget_(entry.first);
    return true;
  });
}

void KnownAdapters::release_all() {
  for (const auto& entry : known_) forget_(entry.first);
  known_.clear();
}

}  // namespace graft
