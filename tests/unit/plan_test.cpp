#include "plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "catalog.h"
#include "measure.h"

namespace arb {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

Machine two_gpus() {
  return {.evidence = Evidence::measured,
          .ranks = 2,
          .bundles = {"12.8-nvrtc", "13.0-nvrtc", "13.0-nvcc"},
          .nccls = {"2.28.9+cuda13.0"}};
}

Sweep small_sweep() {
  Sweep sweep;
  sweep.min_bytes = 1 * kib;
  sweep.max_bytes = 4 * kib;
  return sweep;
}

std::string message_of(const Sweep& sweep, const Machine& machine) {
  try {
    make_plan(sweep, machine);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Plan, CallsPerGraphFollowTheSize) {
  EXPECT_EQ(calls_per_graph(1 * mib, Evidence::measured), 20u);
  EXPECT_EQ(calls_per_graph(1 * mib + 2, Evidence::measured), 10u);
  EXPECT_EQ(calls_per_graph(16 * mib, Evidence::measured), 10u);
  EXPECT_EQ(calls_per_graph(64 * mib, Evidence::measured), 5u);
  EXPECT_EQ(calls_per_graph(65 * mib, Evidence::measured), 3u);
  EXPECT_GE(calls_per_graph(1 * kib, Evidence::emulated), 3u);
}

TEST(Plan, SizesByFactorAndByStep) {
  Sweep sweep = small_sweep();
  EXPECT_EQ(sizes_of(sweep), (std::vector<std::uint64_t>{1 * kib, 2 * kib, 4 * kib}));
  sweep.max_bytes = 5 * kib;
  EXPECT_EQ(sizes_of(sweep).back(), 4 * kib);
  sweep.step_bytes = 1 * kib;
  EXPECT_EQ(sizes_of(sweep).size(), 5u);
  sweep = small_sweep();
  sweep.factor = ~std::uint64_t{0};
  EXPECT_EQ(sizes_of(sweep).size(), 1u) << "no wrap at the end of 64 bits";
}

TEST(Plan, BadSizesAreRefusedWithASentence) {
  const Machine machine = two_gpus();
  Sweep sweep = small_sweep();
  sweep.min_bytes = 1025;
  EXPECT_NE(message_of(sweep, machine).find("multiple of 2"), std::string::npos);
  sweep = small_sweep();
  sweep.max_bytes = 512;
  EXPECT_NE(message_of(sweep, machine).find("-b 1K is more than -e 512"), std::string::npos);
  sweep = small_sweep();
  sweep.max_bytes = std::uint64_t{64} << 30;
  EXPECT_NE(message_of(sweep, machine).find("smaller than 64G"), std::string::npos);
  sweep = small_sweep();
  sweep.factor = 1;
  EXPECT_NE(message_of(sweep, machine).find("-f 1"), std::string::npos);
  sweep = small_sweep();
  sweep.min_bytes = 0;
  EXPECT_NE(message_of(sweep, machine), "");
  sweep = small_sweep();
  sweep.min_bytes = 1026;
  sweep.dtypes = {Dtype::bf16, Dtype::fp32};
  EXPECT_NE(message_of(sweep, machine).find("fp32"), std::string::npos);
}

TEST(Plan, AMisspeltContenderBringsTheNearest) {
  Sweep sweep = small_sweep();
  std::string name(catalog().front().contender);
  std::swap(name[1], name[2]);
  sweep.contenders = {name};
  const std::string message = message_of(sweep, two_gpus());
  EXPECT_NE(message.find("did you mean '" + std::string(catalog().front().contender) + "'"),
            std::string::npos)
      << message;
}

TEST(Plan, ToolkitsByVersionMeanTheirNvrtc) {
  const std::vector<std::string> bundles = two_gpus().bundles;
  EXPECT_EQ(select_bundles({}, bundles), (std::vector<std::string>{"12.8-nvrtc", "13.0-nvrtc"}));
  EXPECT_EQ(select_bundles({"13.0"}, bundles), (std::vector<std::string>{"13.0-nvrtc"}));
  EXPECT_EQ(select_bundles({"13.0-nvcc", "13.0"}, bundles),
            (std::vector<std::string>{"13.0-nvcc", "13.0-nvrtc"}));
  EXPECT_EQ(select_bundles({}, {"13.1-nvcc"}), (std::vector<std::string>{"13.1-nvcc"}));
  EXPECT_THROW(select_bundles({"12.9"}, bundles), UsageError);
}

TEST(Plan, SizesComeBeforeContendersAndPlacesStayTogether) {
  Sweep sweep = small_sweep();
  sweep.places = {Place::out, Place::in};
  const Plan plan = make_plan(sweep, two_gpus());
  EXPECT_TRUE(std::ranges::is_sorted(plan.cells, {}, &Cell::bytes));
  std::set<std::string> names;
  for (const Cell& cell : plan.cells) {
    EXPECT_TRUE(names.insert(cell_name(cell)).second) << cell_name(cell) << " twice";
    const CatalogRow* row = find_contender(cell.contender);
    ASSERT_NE(row, nullptr);
    EXPECT_TRUE(row->in_place || cell.place == Place::out);
    EXPECT_EQ(cell.bundle.empty(), row->source != Source::kernel);
    EXPECT_EQ(cell.nccl.empty(), row->source != Source::nccl);
    EXPECT_NE(row->source, Source::peer) << "nobody asked for " << row->peer;
    EXPECT_EQ(cell.calls_per_graph, cell.mode == Mode::isolated ? 1u : 20u);
  }
  // A refusal of the catalog is said once for each contender that has one, and so is a lack of islands.
  std::size_t said = 0;
  for (const CatalogRow& row : catalog())
    said += row.source != Source::peer && (row.needs_islands || !row.in_place) ? 1 : 0;
  EXPECT_EQ(plan.remarks.size(), said);
}

TEST(Plan, EmulatedPlansHaveKernelsOnly) {
  const Plan plan =
      make_plan(small_sweep(), {.evidence = Evidence::emulated, .ranks = 4, .bundles = {}, .nccls = {}});
  for (const Cell& cell : plan.cells) {
    EXPECT_EQ(find_contender(cell.contender)->source, Source::kernel);
    EXPECT_EQ(cell.ranks, 4u);
    EXPECT_EQ(cell.bundle + cell.nccl, "");
  }
}

TEST(Plan, WhatCannotTakePartIsSaid) {
  Machine machine = two_gpus();
  machine.nccls = {};
  const Plan plan = make_plan(small_sweep(), machine);
  EXPECT_EQ(plan.remarks.size(),
            static_cast<std::size_t>(std::ranges::count_if(catalog(), [](const CatalogRow& row) {
              return row.source == Source::nccl || row.needs_islands;
            })));
  Sweep only_nccl = small_sweep();
  for (const CatalogRow& row : catalog()) {
    if (row.source == Source::nccl) only_nccl.contenders.emplace_back(row.contender);
  }
  EXPECT_NE(message_of(only_nccl, machine).find("nothing to run"), std::string::npos);
}

TEST(Plan, ContendersThatAnNcclIsTooOldForAreLeftOutUnlessNamed) {
  Machine machine = two_gpus();
  machine.nccls = {"2.26.2+cuda12.8", "2.28.9+cuda13.0"};
  machine.nccl_window_problems = {{"2.26.2+cuda12.8", "NCCL 2.26.2 is too old"}};
  Sweep by_name = small_sweep();
  const auto count = [&](const std::vector<Cell>& cells, const CatalogRow& row, const std::string& nccl) {
    return std::ranges::count_if(
        cells, [&](const Cell& cell) { return cell.contender == row.contender && cell.nccl == nccl; });
  };
  const Plan plan = make_plan(small_sweep(), machine);
  int windows = 0;
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::nccl) continue;
    by_name.contenders.emplace_back(row.contender);
    windows += needs_windows(row) ? 1 : 0;
    EXPECT_EQ(count(plan.cells, row, machine.nccls[0]) == 0, needs_windows(row)) << row.contender;
    EXPECT_GT(count(plan.cells, row, machine.nccls[1]), 0) << row.contender;
  }
  EXPECT_GT(windows, 0);
  EXPECT_EQ(
      std::ranges::count_if(plan.remarks,
                            [](const std::string& said) { return said.ends_with("NCCL 2.26.2 is too old"); }),
      windows);
  const Plan named = make_plan(by_name, machine);
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::nccl) continue;
    EXPECT_GT(count(named.cells, row, machine.nccls[0]), 0) << row.contender;
  }
}

Machine with_peers(std::uint32_t ranks) {
  Machine machine = two_gpus();
  machine.ranks = ranks;
  machine.island_ranks = 0;
  for (const CatalogRow& row : catalog()) {
    const std::string name(row.peer);
    if (!name.empty() && std::ranges::find(machine.peers, name) == machine.peers.end())
      machine.peers.push_back(name);
  }
  return machine;
}

TEST(Plan, APeerTakesPartOnlyWhereItWasNamed) {
  const Machine machine = with_peers(2);
  ASSERT_FALSE(machine.peers.empty());
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::peer) continue;
    Sweep asked = small_sweep();
    const Plan all = make_plan(asked, machine);
    EXPECT_EQ(std::ranges::count(all.cells, row.contender, &Cell::contender), 6) << row.contender;
    asked.contenders = {std::string(row.contender)};
    EXPECT_NE(message_of(asked, two_gpus()).find("--peer " + std::string(row.peer)), std::string::npos)
        << message_of(asked, two_gpus());
    Machine threads = machine;
    threads.peer_problem = "it needs --world processes";
    EXPECT_NE(message_of(asked, threads).find("it needs --world processes"), std::string::npos);
    const Plan others = make_plan(small_sweep(), threads);
    EXPECT_EQ(std::ranges::count(others.cells, row.contender, &Cell::contender), 0);
    // It takes neither a toolkit nor an NCCL.
    Machine bare = machine;
    bare.bundles = {};
    bare.nccls = {};
    asked.toolkits = {"13.0"};
    for (const Cell& cell : make_plan(asked, bare).cells) {
      EXPECT_EQ(cell.bundle + cell.nccl, "");
      EXPECT_EQ(variant_name(cell), row.peer);
    }
    asked.toolkits = {};
    EXPECT_NE(message_of(asked, {.evidence = Evidence::emulated, .ranks = 2, .bundles = {}, .nccls = {}})
                  .find("runs on GPUs only"),
              std::string::npos);
  }
}

TEST(Plan, WhatAPeerRefusesIsLeftOutAndSaidOnce) {
  for (const std::uint32_t ranks : {2u, 3u, 8u}) {
    const Machine machine = with_peers(ranks);
    for (const CatalogRow& row : catalog()) {
      if (row.source != Source::peer) continue;
      Sweep asked = small_sweep();
      asked.contenders = {std::string(row.contender)};
      asked.dtypes = {all_dtypes.begin(), all_dtypes.end()};
      asked.places = {Place::out, Place::in};
      asked.min_bytes = 1024;
      asked.max_bytes = 1032;
      asked.step_bytes = 4;
      std::size_t refused = 0;
      for (const Dtype dtype : all_dtypes) {
        for (const Place place : asked.places) {
          for (const std::uint64_t bytes : {1024u, 1028u, 1032u}) {
            if (!refusal_of(row, {dtype, ranks, bytes, place}).empty()) ++refused;
          }
        }
      }
      const Plan plan = make_plan(asked, machine);
      EXPECT_EQ(plan.cells.size(), (18 - refused) * asked.modes.size()) << row.contender;
      EXPECT_GT(refused, 0u) << row.contender;
      const std::set<std::string> once(plan.remarks.begin(), plan.remarks.end());
      EXPECT_EQ(once.size(), plan.remarks.size());
      for (const Cell& cell : plan.cells)
        EXPECT_EQ(refusal_of(row, {cell.dtype, cell.ranks, cell.bytes, cell.place}), "");
    }
  }
}

TEST(Plan, NcclAloneNeedsNoBundle) {
  Machine machine = two_gpus();
  machine.bundles = {};
  Sweep sweep = small_sweep();
  sweep.toolkits = {"13.0"};
  sweep.contenders = {
      std::string(std::ranges::find(catalog(), Source::nccl, &CatalogRow::source)->contender)};
  EXPECT_FALSE(make_plan(sweep, machine).cells.empty());
}

TEST(Plan, TheUsersCountsWin) {
  Sweep sweep = small_sweep();
  sweep.samples = 7;
  sweep.warmups = 0;
  for (const Cell& cell : make_plan(sweep, two_gpus()).cells) {
    EXPECT_EQ(cell.samples, 7u);
    EXPECT_EQ(cell.warmups, 0u);
  }
}

// 14 columns from 1K to 256M where the largest call takes 890 us: below 4 minutes.
TEST(Plan, AFullSweepTakesMinutes) {
  Sweep sweep;
  sweep.min_bytes = 1 * kib;
  sweep.max_bytes = 256 * mib;
  double total_us = 0;
  for (const std::uint64_t bytes : sizes_of(sweep)) {
    const double call_us = 6 + 890.0 * static_cast<double>(bytes) / (256.0 * mib);
    for (const Mode mode : {Mode::pipelined, Mode::isolated}) {
      const double calls = (default_samples(bytes, mode, Evidence::measured) +
                            default_warmups(bytes, mode, Evidence::measured)) *
                           (mode == Mode::pipelined ? calls_per_graph(bytes, Evidence::measured) : 1.0);
      constexpr double preparation_us = 200'000;  // buffers, capture, checks: generous
      total_us += 14 * (preparation_us + calls * call_us);
    }
  }
  EXPECT_LT(total_us, 240e6);
}

TEST(Plan, IslandsBringTheContendersThatNeedThem) {
  Machine machine = two_gpus();
  machine.ranks = 8;
  machine.island_ranks = 4;
  const Plan plan = make_plan(small_sweep(), machine);
  for (const CatalogRow& row : catalog()) {
    if (row.source == Source::peer) continue;
    const auto cell = std::ranges::find(plan.cells, std::string(row.contender), contender_name);
    ASSERT_NE(cell, plan.cells.end()) << row.contender;
    EXPECT_EQ(cell->island_ranks, row.needs_islands ? 4u : 0u) << row.contender;
  }
}

}  // namespace
}  // namespace arb
