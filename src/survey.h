// A machine's own limits in full: which tests, what they found, and known illnesses that the figures show. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "limit_measurement.h"

namespace arb {

// Blocks of a rank that the SM engines are surveyed at, most last.
inline constexpr std::uint32_t survey_blocks[] = {4, 16, some_blocks, many_blocks};
// Tensors that a node copies locally: what an allreduce out of place takes at the very least.
inline constexpr std::uint64_t survey_copy_bytes[] = {1u << 10, 16u << 10, 256u << 10, 1u << 20,
                                                      4u << 20, 16u << 20, 64u << 20};
// Chains of empty nodes: the shorter is K of small cells, the difference of both is a node without a graph's start.
inline constexpr std::uint32_t few_nodes = 20;
inline constexpr std::uint32_t many_nodes = 1000;

// All tests of `ranks` ranks, what matters most first: a survey that is cut short has the start of this list.
std::vector<LimitTest> survey_plan(std::uint32_t ranks);

struct SurveyFigure {
  LimitTest test;
  double value;  // in the unit of its kind; positive
};

struct Survey {
  std::uint32_t ranks = 0;
  std::vector<int> numa_nodes = {};  // by rank; -1 or nothing: not known
  std::vector<SurveyFigure> figures = {};

  // The figure of a test; empty where it was not made.
  [[nodiscard]] std::optional<double> value(const LimitTest& test) const;
  // The most that an engine reached over the block counts, in GB/s of the busiest rank.
  [[nodiscard]] std::optional<double> best_gbps(Engine engine, Traffic traffic, std::uint32_t from = 0,
                                                std::uint32_t to = 0) const;
  // The block count at which most pairs' median is best; 0 for copy engines.
  [[nodiscard]] std::uint32_t best_blocks(Engine engine) const;
  // The figures of all directed pairs, ascending.
  [[nodiscard]] std::vector<double> pairs_gbps(Engine engine, std::uint32_t blocks) const;
};

// One empty node, from the two chains of an edge.
struct NodeCost {
  double us_k20;    // in a graph of 20, its start included
  double us;        // without the start
  double start_us;  // of a graph
};
std::optional<NodeCost> node_cost(const Survey& survey, GraphEdge edge);
NodeCost node_cost(double few_us, double many_us);

enum class Illness : std::uint8_t { staged_loads, write_collapse, slow_pair };
constexpr std::string_view name_of(Illness illness) {
  switch (illness) {
    case Illness::staged_loads:
      return "staged_loads";
    case Illness::write_collapse:
      return "write_collapse";
    case Illness::slow_pair:
      break;
  }
  return "slow_pair";
}

// Loads of a pair so many times slower than its best other engine are staged through system memory. Seen: healthy
// boxes at most 1.25 (SM120 over PCIe, vllm #56128: stores 44.8 and loads 42.8 GB/s alone, 25.4 and 20.6 together;
// H200: 366 and 335); staged by the driver 14 (242 against 17 us). This is the middle of the two, as a ratio.
inline constexpr double staged_load_ratio = 4;
// Stores of all pairs at once so many times below a ring of stores, or one pair alone, have collapsed. Seen on 8x SM120
// with two sockets: healthy 2.6 (164 GB/s for all 8 against 421-435 in a ring: the socket link); collapsed 14 (37 to
// 2.7 GB/s, rtx6kpro collapse-report). The middle, as a ratio, is 6; a little less, because less is still a warning.
inline constexpr double write_collapse_ratio = 5;
// A pair below this fraction of the median of its kind (same engine; same or different NUMA node) is slow. Seen on
// healthy 8x SM120: copies of 36-51 GB/s across sockets, so the slowest is at 0.82 of the median, and 53-56.6 inside
// one; a link of half the width or one generation less is at 0.5.
inline constexpr double slow_pair_fraction = 0.7;

struct Warning {
  Illness illness;
  std::string sentence;
};
// What the figures show of known illnesses, a sentence each with its figures; none where figures are missing.
std::vector<Warning> warnings_of(const Survey& survey);

}  // namespace arb
