// The gate over the catalog: correctness under a pairwise cover of scenarios, and planted bugs that must be
// caught. A seed gives the same runs every time; ARB_GATE_SEEDS scales their number.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "catalog.h"
#include "emulator/failure.h"
#include "scenario.h"

namespace arb::gate {

// How many covers a contender runs; planted bugs are tried in proportion. ARB_GATE_SEEDS, default 20.
std::uint32_t gate_seeds();

// Calls work(machine, index) for all indices below `count`, two at a time, each on a machine of its own
// thread.
void in_parallel(std::size_t count,
                 const std::function<void(emulator::ProofMachine& machine, std::size_t index)>& work);

// Hears how much is done, from one thread at a time; what it throws ends the work.
using Progress = std::function<void(std::size_t done, std::size_t total)>;

struct GateResult {
  std::uint64_t runs = 0;
  std::uint64_t operations = 0;
  std::vector<std::string> failures;  // scenario and failure; at most a few
};
// The first seed of the runs that belong to a user's seed; those of CI belong to 1.
std::uint64_t first_run_seed(std::uint64_t users_seed);
// Runs `covers` covers of a contender from the `first`th on, no seed twice.
GateResult run_gate(const CatalogRow& row, std::uint32_t covers, std::uint32_t first = 0,
                    const Progress& progress = {}, std::uint64_t first_seed = 1);

// One change to one site of a kernel file.
struct PlantedBug {
  std::string kernel;
  emulator::Mutation mutation;
  std::vector<const CatalogRow*> contenders;  // that pass the site
};
// "publish: wait (acquire): relax"
std::string name_of(const PlantedBug& bug);
// All planted bugs of all kernel files: the sites that their contenders pass, each with every change that
// applies to its kind.
std::vector<PlantedBug> planted_bugs();

struct PlantedResult {
  std::uint64_t seeds_tried = 0;
  std::uint64_t seeds_caught = 0;
  std::map<std::string, std::uint64_t> how;  // failure kinds, with counts
  std::string example;                       // text of the first failure, and how to replay it
};
// Tries a bug under fixed seeds: `least` of them, and on to `most` while it is not caught.
PlantedResult try_bug(emulator::ProofMachine& machine, const PlantedBug& bug, std::uint64_t least,
                      std::uint64_t most, std::uint64_t first_seed = 1);

// All planted bugs of some contenders (of all, if `wanted` is empty).
struct PlantedTable {
  struct Line {
    PlantedBug bug;
    PlantedResult result;
    bool argued = false;
  };
  std::vector<Line> lines;
  std::vector<std::string> problems;  // one each: never caught and not argued away, or argued and caught
  // planted.csv.
  [[nodiscard]] std::string csv() const;
};
PlantedTable try_planted_bugs(std::uint32_t seeds, const std::vector<const CatalogRow*>& wanted = {},
                              const Progress& progress = {}, std::uint64_t first_seed = 1);

// Runs one scenario again: "contender,index in the cover,seed" and, for a planted bug, ",name of the bug" as
// failure texts give it. Returns what happened, in words.
std::string replay(const std::string& what);

// The failure kinds of a bug with counts: "wrong value 3; race 17", or "argued".
std::string how_text(const PlantedTable::Line& line);
// Bugs that no run can catch because the code without the site is right too, each with the reason:
// (kernel, planted bug) -> argument. From argued.csv.
std::map<std::pair<std::string, std::string>, std::string> argued_bugs();

}  // namespace arb::gate
