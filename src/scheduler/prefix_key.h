// PrefixKey: what beside tokens decides which cached keys and values a request may use: its root
// (tenant, salt, weights and way of computing) and, for each of its tokens, the attachments that
// act on it. An attachment that acts from position p leaves the tokens before p as the base's, so
// they are shared with the base; its name plays no part, its content's digest does.
// Pure function; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/kv/prefix_path.h"
#include "modules/module_version.h"

namespace graft {

struct PrefixKey {
  std::string root;
  std::vector<RoleRun> roles;
};

// `computed_by`: digest of the weights and name of the execution mode.
PrefixKey make_prefix_key(std::string_view tenant, std::string_view salt,
                          std::string_view computed_by, const AttachmentSet& attachments);

}  // namespace graft
