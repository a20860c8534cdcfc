// The gate: every kernel contender is right in every scenario, and no planted bug goes unnoticed.
#include "emulator/gate/gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>

namespace arb::gate {
namespace {

class Contender : public testing::TestWithParam<std::string> {};

std::vector<const CatalogRow*> kernel_contenders() {
  std::vector<const CatalogRow*> rows;
  for (const CatalogRow& row : catalog())
    if (row.source == Source::kernel) rows.push_back(&row);
  return rows;
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const CatalogRow* row : kernel_contenders()) result.emplace_back(row->contender);
  return result;
}

TEST_P(Contender, is_right_in_every_scenario) {
  const GateResult result = run_gate(*find_contender(GetParam()), gate_seeds());
  for (const std::string& failure : result.failures) ADD_FAILURE() << failure;
  RecordProperty("runs", std::to_string(result.runs));
  RecordProperty("operations", std::to_string(result.operations));
}

INSTANTIATE_TEST_SUITE_P(Gate, Contender, testing::ValuesIn(names()), [](const auto& name) {
  std::string result = name.param;
  std::replace(result.begin(), result.end(), '/', '_');
  return result;
});

// Writes planted.csv into the working directory, or where ARB_PLANTED_CSV says.
TEST(PlantedBugs, are_caught_or_argued) {
  const PlantedTable table = try_planted_bugs(gate_seeds());
  for (const std::string& problem : table.problems) ADD_FAILURE() << problem;
  const char* path = std::getenv("ARB_PLANTED_CSV");
  std::ofstream csv(path == nullptr ? "planted.csv" : path);
  csv << table.csv();
  EXPECT_TRUE(csv.flush().good()) << "planted.csv could not be written";
}

// Results must not depend on what a machine ran before, or threads would make the gate's figures vary.
TEST(Scenario, replays_on_a_used_machine_as_on_a_new_one) {
  emulator::ProofMachine used(2, 1);
  for (const CatalogRow* row : kernel_contenders()) {
    const std::vector<Scenario> cover = pairwise_cover(*row, 1);
    for (std::size_t index = 0; index < cover.size(); index += 9) {
      emulator::ProofMachine fresh(2, 1);
      const ScenarioResult first = run_scenario(fresh, cover[index], index + 1);
      const ScenarioResult again = run_scenario(used, cover[index], index + 1);
      EXPECT_EQ(first.trace_hash, again.trace_hash) << describe(cover[index]);
      EXPECT_EQ(first.operations, again.operations) << describe(cover[index]);
    }
  }
}

TEST(Scenario, cover_has_every_pair_and_stays_small) {
  for (const CatalogRow* row : kernel_contenders()) {
    const std::vector<Scenario> cover = pairwise_cover(*row, 1);
    EXPECT_LT(cover.size(), 130U);  // 7 rank counts x 12 count classes are 84
    for (const Team& team : teams_of(*row))
      for (const Dtype dtype : all_dtypes)
        for (const Place place : {Place::out, Place::in}) {
          const auto has = [&](const auto& matches) {
            return std::any_of(cover.begin(), cover.end(), matches);
          };
          const auto is_team = [&](const Scenario& s) {
            return s.ranks == team.ranks && s.island_ranks == team.island_ranks;
          };
          EXPECT_TRUE(has([&](const Scenario& s) { return is_team(s) && s.dtype == dtype; }));
          EXPECT_EQ(has([&](const Scenario& s) { return is_team(s) && s.place == place; }),
                    place == Place::out || row->in_place);
        }
  }
}

// For people: ARB_GATE_REPLAY runs one scenario again and prints what happens.
TEST(Replay, of_one_run) {
  const char* what = std::getenv("ARB_GATE_REPLAY");
  if (what == nullptr) GTEST_SKIP() << "set ARB_GATE_REPLAY to what a failure text says";
  std::cout << replay(what) << std::endl;
}

}  // namespace
}  // namespace arb::gate
