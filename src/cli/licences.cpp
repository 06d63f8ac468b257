#include "cli/licences.h"

#include "graft_licences.h"

namespace graft::cli {

std::string licences_text() { return std::string(kLicenceText) + "\n" + kNoticeText; }

}  // namespace graft::cli
