// The gate: every kernel contender of the catalog is right in every scenario of a pairwise cover.
#include <gtest/gtest.h>

#include <cstdlib>

#include "scenario.h"

namespace arb::test {
namespace {

TEST(Gate, quick) {
  emulator::ProofMachine machine(2, 1);
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel) continue;
    const std::vector<Scenario> cover = pairwise_cover(row, 1);
    std::uint64_t operations = 0;
    int n = 0;
    for (int round = 0; round < 3; ++round)
      for (const Scenario& scenario : cover) {
        const ScenarioResult result = run_scenario(machine, scenario, 1000 + n++);
        operations += result.operations;
        ASSERT_FALSE(result.failure) << describe(scenario) << "\n" << result.failure->text;
      }
    std::printf("%s: %d runs, %llu operations\n", std::string(row.contender).c_str(), n,
                static_cast<unsigned long long>(operations));
  }
}

}  // namespace
}  // namespace arb::test
