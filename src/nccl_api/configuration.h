// What a contender's NCCL configuration came to in this process, and how a row says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog.h"
#include "nccl_api/debug_log.h"

namespace arb::nccl {

// The row's variables as this process's environment has them; NCCL reads them when it is first used.
struct Configuration {
  std::vector<std::string> users;  // "NCCL_MIN_NCHANNELS=16": set to another value than the row's
  std::string problem;  // one sentence: a variable is not set, so this process has another configuration
};
Configuration configuration_here(const CatalogRow& row);

// What a call in a window came to.
enum class Window : std::uint8_t {
  none,          // the contender has none
  registered,    // NCCL registered it
  unregistered,  // NCCL reported success and registered nothing
};
// Whether a call of a contender with a window was no symmetric kernel; false where that is not known.
bool fell_back(const std::optional<Choice>& choice, Window window);
// "RING LL 8 channels P2P/CUMEM (fell back: not a symmetric kernel) (the user's NCCL_MIN_NCHANNELS=16)"; what
// is not known is left out.
std::string what_ran(const std::optional<Choice>& choice, Window window, const Configuration& configuration);

}  // namespace arb::nccl
