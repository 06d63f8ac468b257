// The licence texts built into the binary: LICENSE and NOTICE, embedded at configure time.
#pragma once

#include <string>

namespace graft::cli {

std::string licences_text();

}  // namespace graft::cli
