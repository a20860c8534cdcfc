// The gate: every kernel contender is right in every scenario, and no planted bug goes unnoticed.
#include "emulator/gate/gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

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

// Levels are those that occur: what never occurs at all shows in the scenarios' own counts.
TEST(Scenario, cover_has_every_pair_and_stays_small) {
  using Factor = std::uint64_t (*)(const Scenario&);
  const std::vector<Factor> factors = {
      [](const Scenario& s) { return std::uint64_t{s.ranks} * 100 + s.island_ranks; },
      [](const Scenario& s) { return static_cast<std::uint64_t>(s.dtype); },
      [](const Scenario& s) { return static_cast<std::uint64_t>(s.place); },
      [](const Scenario& s) { return static_cast<std::uint64_t>(s.alignment); },
      [](const Scenario& s) { return static_cast<std::uint64_t>(s.grid); },
      [](const Scenario& s) { return static_cast<std::uint64_t>(s.values); },
      [](const Scenario& s) { return static_cast<std::uint64_t>(s.start); },
      [](const Scenario& s) { return static_cast<std::uint64_t>(s.counts); }};
  for (const CatalogRow* row : kernel_contenders()) {
    const std::vector<Scenario> cover = pairwise_cover(*row, 1);
    EXPECT_LT(cover.size(), 150U);  // 7 teams x 16 counts are 112
    for (std::size_t a = 0; a < factors.size(); ++a) {
      for (std::size_t b = a + 1; b < factors.size(); ++b) {
        std::set<std::uint64_t> levels_a;
        std::set<std::uint64_t> levels_b;
        std::set<std::pair<std::uint64_t, std::uint64_t>> pairs;
        for (const Scenario& scenario : cover) {
          levels_a.insert(factors[a](scenario));
          levels_b.insert(factors[b](scenario));
          pairs.insert({factors[a](scenario), factors[b](scenario)});
        }
        EXPECT_EQ(pairs.size(), levels_a.size() * levels_b.size()) << row->contender << " " << a << " " << b;
      }
    }
    EXPECT_EQ(std::ranges::count_if(cover, [](const Scenario& s) { return s.place == Place::in; }) > 0,
              row->in_place);
    for (const Team& team : teams_of(*row)) {
      EXPECT_TRUE(std::ranges::any_of(cover, [&](const Scenario& s) {
        return s.ranks == team.ranks && s.island_ranks == team.island_ranks;
      }));
    }
  }
}

TEST(Replay, what_does_not_exist_is_a_sentence) {
  const std::string contender(kernel_contenders().front()->contender);
  for (const auto& [what, words] : {std::pair{contender + ",9999,1", "scenario 9999 does not exist; "},
                                    std::pair{contender + ",x,1", "not a number: \"x\""},
                                    std::pair{std::string("none,1,1"), "no kernel contender \"none\""},
                                    std::pair{contender + ",0,1,none", "no planted bug \"none\""}}) {
    try {
      replay(what);
      ADD_FAILURE() << what;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST(Gate, another_seed_makes_other_runs) {
  const CatalogRow& row = *kernel_contenders().front();
  const auto operations = [&](std::uint64_t seed) {
    return run_gate(row, 1, 0, {}, first_run_seed(seed)).operations;
  };
  EXPECT_EQ(operations(1), operations(1));
  EXPECT_NE(operations(1), operations(2));
}

}  // namespace
}  // namespace arb::gate
