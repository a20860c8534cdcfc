// The gate over the catalog: correctness under a pairwise cover of scenarios, and planted bugs that must be
// caught. All seeds are fixed; ARB_GATE_SEEDS scales their number.
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

struct GateResult {
  std::uint64_t runs = 0;
  std::uint64_t operations = 0;
  std::vector<std::string> failures;  // scenario and failure; at most a few
};
// Runs `covers` covers of a contender, no seed twice.
GateResult run_gate(const CatalogRow& row, std::uint32_t covers);

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
                      std::uint64_t most);

// Runs one scenario again: "contender,index in the cover,seed" and, for a planted bug, ",name of the bug" as
// failure texts give it. Returns what happened, in words.
std::string replay(const std::string& what);

// Bugs that no run can catch because the code without the site is right too, each with the reason:
// (kernel, planted bug) -> argument. From argued.csv.
std::map<std::pair<std::string, std::string>, std::string> argued_bugs();

}  // namespace arb::gate
