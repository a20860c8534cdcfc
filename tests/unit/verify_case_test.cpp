#include "verify_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace arb {
namespace {

struct TeamOnGpus {
  std::uint32_t ranks;
  std::uint32_t gpus;
};
constexpr TeamOnGpus some_teams[] = {{2, 2}, {3, 3}, {4, 4}, {8, 8}, {8, 1}, {8, 2}, {3, 2}, {5, 1}, {6, 2}};

TEST(VerifyCase, HoldsWhatItPromisesOnEveryTeam) {
  for (const CatalogRow& row : catalog()) {
    for (const auto [ranks, gpus] : some_teams) {
      if (!can_verify(row, ranks)) continue;
      for (std::uint64_t number = 0; number < 3 * case_cycle; ++number) {
        const VerifyCase drawn = verify_case(row, ranks, gpus, number);
        SCOPED_TRACE(describe(drawn));
        EXPECT_EQ(drawn.calls % (drawn.calls_per_graph() * drawn.graphs_at_once), 0u);
        EXPECT_GE(drawn.calls, 2u);
        EXPECT_LE(drawn.bytes(), (std::uint64_t{64} << 20));
        EXPECT_TRUE(row.in_place || drawn.place == Place::out);
        EXPECT_TRUE(!row.needs_islands || (drawn.island_ranks >= 2 && ranks % drawn.island_ranks == 0 &&
                                           ranks / drawn.island_ranks >= 2));
        for (const LaunchShape& shape : drawn.shapes) {
          if (row.source != Source::kernel) continue;
          EXPECT_TRUE(shape.blocks >= 1 && shape.blocks <= max_blocks);
          EXPECT_TRUE(shape.threads >= 32 && shape.threads <= max_threads && shape.threads % 32 == 0);
        }
        EXPECT_EQ(describe(drawn), describe(verify_case(row, ranks, gpus, number)));
        const Cell cell = verify_cell(row, ranks, gpus, number);
        EXPECT_EQ(cell.bytes, drawn.bytes());
        EXPECT_EQ(cell.verify_calls, drawn.calls);
        EXPECT_EQ(cell.seed, number);
      }
    }
  }
}

TEST(VerifyCase, ACycleVisitsEverySizeAndEveryWay) {
  for (const CatalogRow& row : catalog()) {
    if (!can_verify(row, 8)) continue;
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1'000'000}, std::uint64_t{7'000'013}}) {
      std::multiset<std::uint64_t> sizes;
      std::set<Dtype> dtypes;
      std::set<Pattern> patterns;
      std::set<Place> places;
      std::uint64_t calls = 0;
      int adjacent = 0;
      int changing = 0;
      int model_shards = 0;
      for (std::uint64_t number = first; number < first + case_cycle; ++number) {
        const VerifyCase drawn = verify_case(row, 8, 8, number);
        sizes.insert(drawn.bytes());
        dtypes.insert(drawn.dtype);
        patterns.insert(drawn.pattern);
        places.insert(drawn.place);
        calls += drawn.calls;
        adjacent += drawn.adjacent ? 1 : 0;
        model_shards += drawn.bytes() % 720 == 0 && drawn.bytes() % 128 != 0 ? 1 : 0;
        changing += std::ranges::adjacent_find(
                        drawn.shapes, [](const auto& a, const auto& b) { return a.blocks != b.blocks; }) !=
                            drawn.shapes.end()
                        ? 1
                        : 0;
      }
      EXPECT_EQ(sizes.count(std::uint64_t{64} << 20), 1u);
      EXPECT_EQ(sizes.count(0), 4u);
      EXPECT_GE(sizes.count(2) + sizes.count(4), 4u);
      EXPECT_EQ(dtypes.size(), all_dtypes.size());
      EXPECT_EQ(patterns.size(), 3u);
      EXPECT_EQ(places.size(), row.in_place ? 2u : 1u);
      EXPECT_GE(adjacent, 8);
      EXPECT_GE(model_shards, 2);
      EXPECT_TRUE(row.source == Source::nccl || changing >= 16);
      // 10^5 calls in little more than a cycle.
      EXPECT_GE(calls, 90'000u);
    }
  }
}

TEST(VerifyCase, APlantableCaseHasElementsThatCount) {
  for (const CatalogRow& row : catalog()) {
    if (!can_verify(row, 8)) continue;
    const VerifyCase drawn = verify_case(row, 8, 2, plantable_case(row, 8, 2, 16));
    EXPECT_TRUE(drawn.count_elements != 0 && drawn.pattern != Pattern::special);
  }
}

}  // namespace
}  // namespace arb
