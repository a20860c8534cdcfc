// The search for the fastest contender and launch shape at each size: one launch that looks at many, and fresh launches
// that measure the best few again. No GPU, no processes: whoever calls it launches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend.h"
#include "catalog.h"
#include "tuning.h"

namespace arb {

// A contender whose catalog shape is so many times slower than the best contender's at that size is not searched
// further. Chosen, not measured: a catalog shape that costs as much as this is to be corrected in the catalog.
inline constexpr double can_win_factor = 2;
// Candidates of a size that are measured again; the last is of another contender where the first are all of one, so
// that a crossover does not hang on one launch.
inline constexpr std::size_t finalists_of_each = 4;
// A contender that failed so often in a row is left alone, in graphs of as many calls, for the rest of a launch: each
// time may cost a whole deadline.
inline constexpr int most_tune_failures = 2;

struct TuneAsk {
  std::vector<std::uint64_t> sizes;  // ascending
  Dtype dtype = Dtype::bf16;
  std::uint32_t ranks = 0;
  std::uint32_t island_ranks = 0;
  std::string bundle;
  std::string nccl;                     // measured beside, never chosen; empty: none
  std::vector<std::string> contenders;  // empty: all that can be chosen
  std::uint32_t launches = 3;           // fresh ones, after the one that searches
  std::uint64_t seed = 1;               // of the order of cells
};

// How the search reaches its surroundings.
struct TuneHooks {
  std::function<std::unique_ptr<Backend>()> launch;
  // Runs a cell; a lost worker is an outcome with `failure`.
  std::function<Outcome(Backend& backend, const Cell& cell)> run;
  // After each cell: launch 0 searches, the others decide.
  std::function<void(const Backend& backend, const Cell& cell, const Outcome& outcome, std::uint32_t launch)>
      heard;
  // Before each cell.
  std::function<void(double done_us, double total_us, const std::string& next)> progress;
};

// One candidate of a size after all launches.
struct Finalist {
  std::string contender;
  LaunchShape shape;
  std::vector<double> launches_us;  // p50 of each fresh launch
  double p50_us;                    // their median
};
struct SizeResult {
  std::uint64_t bytes;
  std::vector<Finalist> finalists;     // fastest first; none where nothing ran right
  std::optional<double> nccl_us = {};  // median of the same launches
};

// Shapes worth trying for a message: the catalog's, and every block size with one to a few vectors a thread, where the
// message or a rank's share of it is what threads divide; for large ones also grids that fill a GPU once or twice.
std::vector<LaunchShape> shape_grid(const CatalogRow& row, const Team& team, std::uint64_t bytes);
// The whole search. Throws what the hooks throw.
std::vector<SizeResult> search(const TuneAsk& ask, const TuneHooks& hooks);
// The winners, of the sizes that have one.
std::vector<TunedSize> winners(const std::vector<SizeResult>& results, Evidence evidence);
// A line a size: the winner, the best other contender, NCCL; then where the winner changes.
std::string crossover_table(const std::vector<SizeResult>& results);

}  // namespace arb
