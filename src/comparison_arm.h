// What is compared with what, and in which order the launches come.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"

namespace arb {

// One side of a comparison: how its launches differ from the other's. What is empty is as without it.
struct ArmSpec {
  std::string text;                              // as typed; empty: everything as it is
  std::string toolkit;                           // "12.8", "12.8-nvrtc"
  std::string bundle_folder;                     // a bundle by its folder
  std::string nccl;                              // a libnccl.so.2 or its folder
  std::string contender;                         // a catalog name
  std::string program;                           // another build of arbench, whose workers run
  std::map<std::string, std::string> variables;  // NCCL_PROTO -> LL

  // For table heads: "12.8", "NCCL_PROTO=LL", "as is".
  [[nodiscard]] std::string label() const;
  friend bool operator==(const ArmSpec&, const ArmSpec&) = default;
};

// Reads the texts of one --a or --b: parts between commas, each KEY=VALUE with a key of toolkit, bundle,
// nccl, contender or arbench, or NAME=VALUE (also "env NAME=VALUE") for an environment variable. A part
// without '=' belongs to the value before it, so that NCCL_ALGO=Ring,Tree works. Throws UsageError.
ArmSpec arm_from(const std::vector<std::string>& texts);
// Throws UsageError where one arm alone names a contender, so that no row has a counterpart.
void check_arms(const ArmSpec& a, const ArmSpec& b);

// The launches of one block, by role. `placebo` is A once more; the last two exist with crossed attribution.
enum class Role : std::uint8_t {
  a,
  b,
  placebo,
  compiler_of_b,  // toolkit of B, everything else of A
  nccl_of_b,      // NCCL of B, everything else of A
};
constexpr std::string_view name_of(Role role) {
  switch (role) {
    case Role::a:
      return "a";
    case Role::b:
      return "b";
    case Role::placebo:
      return "placebo";
    case Role::compiler_of_b:
      return "compiler_of_b";
    case Role::nccl_of_b:
      break;
  }
  return "nccl_of_b";
}
// What a role launches.
ArmSpec arm_of(Role role, const ArmSpec& a, const ArmSpec& b);

// The order of launches in each of `blocks` blocks: random, a function of the seed, and balanced. Every role
// comes equally often at every place in each run of as many blocks as there are roles (with three roles,
// every order once in each run of six blocks); a last, shorter run is as balanced as it can be. More blocks
// of the same seed begin with the same orders.
std::vector<std::vector<Role>> block_orders(const std::vector<Role>& roles, std::uint32_t blocks,
                                            std::uint64_t seed);

}  // namespace arb
