// How large memory is made that is slow to share, because sharing it is a meeting of all ranks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace arb {

// At least `bytes`, and 2 MiB: doubling keeps such meetings few; what is large is held exactly.
constexpr std::uint64_t size_to_hold(std::uint64_t bytes) {
  constexpr std::uint64_t mib = 1 << 20;
  constexpr std::uint64_t most_doubled_bytes = 256 * mib;
  if (bytes <= most_doubled_bytes) return std::bit_ceil(std::max(bytes, 2 * mib));
  return (bytes + 2 * mib - 1) / (2 * mib) * (2 * mib);
}

}  // namespace arb
