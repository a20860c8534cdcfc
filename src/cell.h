// A cell is what one figure is about; an outcome is what a backend found for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "types.h"

namespace arb {

// contender x dtype x ranks x size x toolkit x mode. Plain data, the same in coordinator and worker.
struct Cell {
  std::string contender;  // a catalog name
  std::string bundle;     // "12.8-nvrtc"; empty for NCCL and for emulated cells
  std::string nccl;       // "2.28.9+cuda13.0": which NCCL; empty for kernels and for emulated cells
  Dtype dtype = Dtype::bf16;
  std::uint32_t ranks = 0;
  std::uint32_t island_ranks = 0;  // ranks of one island of a box that has several; 0: none
  std::uint64_t bytes = 0;         // of one rank's tensor
  Place place = Place::out;
  Mode mode = Mode::pipelined;
  Cache cache = Cache::warm;
  std::uint32_t calls_per_graph = 1;  // K
  std::uint32_t samples = 0;          // replays to time (pipelined), calls to time (isolated)
  std::uint32_t warmups = 0;          // replays before them
  std::uint64_t seed = 1;             // of the inputs; replay i uses seed + i
  std::uint32_t blocks = 0;           // launch shape instead of the catalog's; 0: the catalog's
  std::uint32_t threads = 0;
  // Not 0: instead of timing, verify so many calls of the case (verify_case.h) whose number is `seed`; dtype,
  // bytes, place and island_ranks are those of the case.
  std::uint64_t verify_calls = 0;
  Plant plant = Plant::none;  // with verify_calls only
  std::string alias = {};     // what rows call the contender where another row chose it: "auto"
  bool check = true;          // false only with -c 0: the row then says unchecked in flags

  friend bool operator==(const Cell&, const Cell&) = default;
};

// Among an Outcome's flags: a wait on a device passed its deadline.
inline constexpr const char* hang_flag = "hang";

// What ran, as a backend saw it. A cell that could not run has `failure` (one sentence) and nothing else.
struct Outcome {
  std::vector<double> samples_us;  // per call, maximum over ranks; empty where nothing was timed (emulated)
  bool correct = false;
  double max_error = 0;     // infinite where a result holds NaN; largest |result - exact sum| / (sum of
                            // |addends|), over elements and ranks
  std::string output_hash;  // equal on all ranks when the outputs are bit-identical
  std::string ran;          // launch shape, or NCCL's algorithm, protocol and channels
  std::vector<std::string>
      flags;  // remarks for the row, one word each (throttled, unchecked, oversubscribed, hang)
  std::optional<std::uint64_t> messages;    // by the busiest rank, where counted (emulated)
  std::optional<std::uint64_t> wire_bytes;  // likewise
  std::string wrong;    // for a wrong cell: one sentence on the first wrong element, or which ranks differ
  std::string failure;  // could not run: why, and what would work

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// The limits of the machine from which a cell's floor follows; measured at the start of a run.
struct MachineLimits {
  double node_us_k20 =
      0;  // empty graph node, the cheaper edge, pipelined at K = 20 (includes the graph's start / K)
  double graph_start_us = 0;     // start of a graph beyond its nodes, so that node(K) = node + start / K
  double node_us = 0;            // a node without the start
  double isolated_node_us = 0;   // one empty node between two stamps, less the stamps
  double flag_us = 0;            // one way, slowest pair
  double bandwidth_gbps = 0;     // best engine, all pairs at once: bytes a rank sends a second
  std::string bandwidth_engine;  // "sm_store", "sm_load" or "copy_engine"
  double stamp_us = 0;           // what the two stamps cost on an empty call; already subtracted from samples
  double clock_tick_ns = 0;      // of the device clock that stamps read

  friend bool operator==(const MachineLimits&, const MachineLimits&) = default;
};

}  // namespace arb
