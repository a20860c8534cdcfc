// A scenario is one proof run of a contender: some calls back to back, each between a launch that rewrites
// the inputs and one that reads the outputs, or all calls in a row, on tensors of their own, between one
// rewrite and one reading; by plain or programmatic edges. Everything about it follows from a row of a
// pairwise cover and a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog.h"
#include "emulator/failure.h"
#include "emulator/kernel_table.h"
#include "emulator/proof.h"

namespace arb::gate {

// How tensors lie: on 16 bytes, on 4, all on one odd element, each on an element of its own, or on 16 bytes but for
// one rank's (symmetric tensors share theirs).
enum class Alignment : std::uint8_t { vector, word, same_element, any_element, one_stranger };
// Which blocks and threads launch, at most 16 a rank.
enum class Grid : std::uint8_t { single, one_block, many_blocks, mixed, changing };
enum class Values : std::uint8_t { random, special };
enum class Start : std::uint8_t { zero, before_wrap };
// Whether all calls have the scenario's count, or draw one up to it each.
enum class Counts : std::uint8_t { same, changing };

struct Scenario {
  const CatalogRow* row = nullptr;
  Dtype dtype = Dtype::bf16;
  std::uint32_t ranks = 2;
  std::uint32_t island_ranks = 0;
  std::uint64_t count = 0;
  Place place = Place::out;
  Alignment alignment = Alignment::vector;
  Grid grid = Grid::single;
  Values values = Values::random;
  Start start = Start::zero;
  Counts counts = Counts::same;
  emulator::KernelFunction kernel = nullptr;  // null: the one that the catalog names
  // For tests of the gate: what scratch beyond the flags holds at first, and how many message areas are left
  // out.
  std::optional<std::uint32_t> scratch_holds;
  std::uint32_t messages_short = 0;
};

// The teams that a contender can run as.
std::vector<Team> teams_of(const CatalogRow& row);
// Scenarios of a contender in which every two levels of every two factors occur together. Counts that are
// classes (odd, many vectors) are drawn from the seed.
std::vector<Scenario> pairwise_cover(const CatalogRow& row, std::uint64_t seed);

struct ScenarioResult {
  std::optional<emulator::Failure> failure;
  std::vector<emulator::SiteId> sites;  // that the kernel passed
  std::uint64_t operations = 0;
  std::uint64_t trace_hash = 0;
};

// Runs a scenario: the machine's own failures first, then every element of every call on every rank.
ScenarioResult run_scenario(emulator::ProofMachine& machine, const Scenario& scenario, std::uint64_t seed,
                            const std::optional<emulator::Mutation>& mutation = std::nullopt);

// "CONTENDER bf16 x 8 ranks, 33 elements, in place, ..." for reports.
std::string describe(const Scenario& scenario);

}  // namespace arb::gate
