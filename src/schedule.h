// What one call of a contender is on one rank: a chain of kernel launches and engine copies, each after the
// one before, but for copies that run beside a launch.
#pragma once

#include <cstdint>
#include <vector>

#include "types.h"

namespace arb {

// Who takes part.
struct Team {
  std::uint32_t ranks;
  std::uint32_t island_ranks;  // ranks of one island; 0: no islands
};

// How many blocks and threads a rank launches.
struct LaunchShape {
  std::uint32_t blocks;
  std::uint32_t threads;
};

// A place in a rank's buffers.
struct Location {
  enum class Buffer : std::uint8_t { input, output, scratch };  // scratch: from its start, flags included
  Buffer buffer;
  std::uint32_t rank;  // input and output: the rank whose schedule this is
  std::uint64_t offset_bytes;
};

// One node of the chain.
struct Step {
  enum class Kind : std::uint8_t { launch, copy };
  Kind kind;
  LaunchShape shape{};       // launch: of the contender's function, with KernelParams::step = number
  std::uint32_t number = 0;  // launch
  Location from{};           // copy
  Location to{};             // copy
  std::uint64_t bytes = 0;   // copy; a copy of no bytes is left out
  // Copies in a row that follow what is before them and one another, while the launch after them, of the same call,
  // follows only what is before them. What comes then follows both.
  bool beside = false;
};

// What a schedule depends on; the same on all ranks but for `rank`.
struct Call {
  Team team;
  std::uint32_t rank;
  std::uint64_t bytes;           // of the message
  std::uint64_t capacity_bytes;  // of a message area of scratch
  bool input_is_aligned = true;  // to vectors
};

using Schedule = std::vector<Step>;

}  // namespace arb
