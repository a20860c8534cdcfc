// Which NCCL libraries a run takes. Only looks at files: workers load them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "errors.h"

namespace arb {

// What to load, in order: the user's paths (a library, or a folder that holds libnccl.so.2), else the name
// "libnccl.so.2" for the loader followed by what lies in well-known places (to take when the loader finds
// none). Throws UsageError on a user's path that is not there.
std::vector<std::string> nccl_candidates(const std::vector<std::string>& user_paths);

}  // namespace arb
