// Tunings as text, what is refused, what is chosen between their sizes; and the search on machines that exist in numbers
// only, where the best is planted.
#include "tune.h"

#include <arb/abi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "double_backend.h"
#include "measure.h"
#include "plan.h"

namespace arb {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

// Kernels that can be chosen without islands.
std::vector<std::string> choosable() {
  std::vector<std::string> names;
  for (const CatalogRow& row : catalog()) {
    if (can_be_chosen(row, 0)) names.emplace_back(row.contender);
  }
  return names;
}
const CatalogRow& chooser() {
  return *std::ranges::find(catalog(), Source::chosen, &CatalogRow::source);
}

MachineFingerprint two_gpus() {
  return {.gpus = {"NVIDIA Pretended", "NVIDIA Pretended"}, .peers = {{1}, {0}}, .numa_nodes = {0, 0}};
}

Tuning some_tuning() {
  const auto names = choosable();
  Tuning tuning{.machine = two_gpus(),
                .ranks = 2,
                .island_ranks = 0,
                .dtype = Dtype::bf16,
                .bundle = "13.0-nvrtc",
                .sizes = {}};
  tuning.sizes.push_back(
      {.bytes = 1 * kib, .contender = names[0], .shape = {1, 128}, .p50_us = 1.75, .launches = 3});
  tuning.sizes.push_back(
      {.bytes = 4 * kib, .contender = names[1], .shape = {8, 32}, .p50_us = 2.5, .launches = 3});
  tuning.sizes.push_back(
      {.bytes = 64 * kib, .contender = names[0], .shape = {1024, 512}, .p50_us = 3, .launches = 3});
  return tuning;
}

std::string refusal(const std::string& text) {
  try {
    tuning_from_json("--tuning x", text);
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

TEST(Tuning, ComesBackAsItWas) {
  const Tuning made = some_tuning();
  const std::string text = to_json(made);
  const Tuning read = tuning_from_json("x", text);
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.machine, made.machine);
  ASSERT_EQ(read.sizes.size(), 3u);
  EXPECT_EQ(read.sizes[1].contender, made.sizes[1].contender);
  EXPECT_EQ(read.sizes[1].shape.blocks, 8u);
  EXPECT_EQ(read.sizes[1].p50_us, 2.5);
  EXPECT_EQ(read.sizes[1].evidence, Evidence::measured);
}

TEST(Tuning, NoPartOfOneIsOne) {
  std::string text = to_json(some_tuning());
  text.pop_back();  // the final newline is no part of it
  for (std::size_t length = 0; length < text.size(); ++length) {
    const std::string said = refusal(text.substr(0, length));
    ASSERT_TRUE(said.starts_with("--tuning x is no tuning: it is cut short")) << length << ": " << said;
  }
}

TEST(Tuning, WhatCannotBeChosenIsRefused) {
  const std::string text = to_json(some_tuning());
  const auto names = choosable();
  const auto says = [&](const std::string& changed, const std::string& words) {
    const std::string said = refusal(changed);
    EXPECT_NE(said.find(words), std::string::npos) << words << " in: " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  };
  says(replaced(text, '"' + names[1] + '"', "\"no_such\""),
       "there is no contender 'no_such'; there are " + names[0]);
  says(replaced(text, '"' + names[1] + '"', '"' + std::string(chooser().contender) + '"'),
       "cannot be chosen");
  for (const CatalogRow& row : catalog()) {
    if (can_be_chosen(row, 0)) continue;
    says(replaced(text, '"' + names[1] + '"', '"' + std::string(row.contender) + '"'),
         row.needs_islands ? "needs islands" : "cannot be chosen");
  }
  for (const char* threads : {"0", "1024", "-32"}) {
    says(replaced(text, "\"threads\": 32", std::string("\"threads\": ") + threads),
         "threads is no whole number from 32 to 512");
  }
  says(replaced(text, "\"threads\": 32", "\"threads\": 33"), "at 4096 bytes 33 threads are no whole warps");
  for (const char* blocks : {"0", "1025", "-8", "8.5", "true", "4294967297", R"("8")", "null"})
    says(replaced(text, "\"blocks\": 8", std::string("\"blocks\": ") + blocks),
         "blocks is no whole number from 1 to");
  says(replaced(text, "\"ranks\": 2", "\"ranks\": -1"), "ranks is no whole number from");
  says(replaced(text, "\"ranks\": 2", "\"ranks\": 4294967298"), "ranks is no whole number from");
  says(replaced(text, "\"launches\": 3", "\"launches\": 0"), "launches is no whole number from");
  says(replaced(text, "\"bytes\": 1024", "\"bytes\": 0"), "bytes is no whole number from");
  says(replaced(text, "\"machine\"", "\"machines\""), "it has no machine");
  says(replaced(text, "\"schema\"", "\"note\": 1, \"schema\""), "it has a key 'note'");
  says(replaced(text, "\"p50_us\": 2.5", "\"p50_us\": 0"), "no positive number");
  says(replaced(text, "\"measured\"", "\"emulated\""), "emulated cells have no time");
  says(replaced(text, "\"measured\"", "\"guessed\""), "no evidence 'guessed'");
  says(replaced(text, "\"bytes\": 4096", "\"bytes\": 512"), "do not ascend");
  says(replaced(text, "\"version\": 1", "\"version\": 2"), "schema");
  says(replaced(text, "\"bf16\"", "\"int8\""), "dtype");
  says(replaced(text, "\"ranks\": 2", "\"rank\": 2"), "ranks");
  says("[]", "no tuning");
  says(R"({"schema":"arbench rows","version":1})", "schema");
  Tuning none = some_tuning();
  none.sizes.clear();
  says(to_json(none), "no sizes");
}

TEST(Tuning, IsForOneMachine) {
  const auto says = [](const MachineFingerprint& machine, std::uint32_t ranks, std::uint32_t islands) {
    try {
      check_tuning("--tuning x", some_tuning(), machine, ranks, islands);
    } catch (const EnvironmentError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(says(two_gpus(), 2, 0), "");
  MachineFingerprint other = two_gpus();
  other.gpus = {"NVIDIA H200", "NVIDIA H200"};
  EXPECT_NE(says(other, 2, 0).find("tuned on 2x NVIDIA Pretended, and this is 2x NVIDIA H200"),
            std::string::npos);
  EXPECT_NE(says({}, 2, 0).find("an emulated machine"), std::string::npos);
  EXPECT_NE(says(two_gpus(), 4, 0).find("2 ranks, and here are 4"), std::string::npos);
  other = two_gpus();
  other.numa_nodes = {0, 1};
  EXPECT_NE(says(other, 2, 0).find("in another way"), std::string::npos);
  other = two_gpus();
  other.peers = {{}, {0}};
  EXPECT_NE(says(other, 2, 0).find("in another way"), std::string::npos);
  EXPECT_NE(says(two_gpus(), 2, 2).find("islands"), std::string::npos);
}

TEST(Tuning, BetweenSizesTheOneBelowApplies) {
  const Tuning tuning = some_tuning();
  const auto choice_at = [&](std::uint64_t bytes) {
    return choice_of(chooser(), &tuning, {2, 0}, bytes, Place::out);
  };
  const auto blocks_at = [&](std::uint64_t bytes) { return choice_at(bytes).shape.blocks; };
  EXPECT_EQ(blocks_at(0), 1u) << "below all sizes the smallest";
  EXPECT_EQ(blocks_at(1 * kib), 1u);
  EXPECT_EQ(blocks_at(4 * kib - 2), 1u);
  EXPECT_EQ(blocks_at(4 * kib), 8u);
  EXPECT_EQ(blocks_at(5760), 8u);
  EXPECT_EQ(blocks_at(64 * kib - 2), 8u);
  EXPECT_EQ(blocks_at(64 * kib), 1024u);
  EXPECT_EQ(blocks_at(1024 * mib), 1024u);
  EXPECT_EQ(choice_at(4 * kib).contender, choosable()[1]);
}

// What is tuned is out of place: in place the rule decides wherever the tuned contender does not run.
TEST(Tuning, InPlaceAChoiceRunsInPlace) {
  for (const CatalogRow& row : catalog()) {
    if (!can_be_chosen(row, 0)) continue;
    Tuning tuning = some_tuning();
    for (TunedSize& entry : tuning.sizes) entry.contender = row.contender;
    for (const std::uint64_t bytes : {1 * kib, 64 * mib}) {
      EXPECT_EQ(choice_of(chooser(), &tuning, {2, 0}, bytes, Place::out).contender, row.contender);
      const Choice in_place = choice_of(chooser(), &tuning, {2, 0}, bytes, Place::in);
      EXPECT_TRUE(find_contender(in_place.contender)->in_place) << in_place.contender;
      if (row.in_place) {
        EXPECT_EQ(in_place.contender, row.contender);
      }
    }
  }
}

// What every rank must agree on depends on nothing but team, bytes and place.
TEST(DefaultRule, ChoosesWhatCanBeChosenAndCrossesOverOnceEach) {
  for (std::uint32_t ranks = 2; ranks <= static_cast<std::uint32_t>(max_ranks); ++ranks) {
    const Team team{ranks, 0};
    std::vector<std::string> in_turn;
    for (std::uint64_t bytes = 2; bytes <= 1024 * mib; bytes += bytes / 16 + 2) {
      const Choice choice = choice_of(chooser(), nullptr, team, bytes, Place::out);
      EXPECT_EQ(choice.contender, choice_of(chooser(), nullptr, team, bytes, Place::out).contender);
      EXPECT_TRUE(find_contender(choice_of(chooser(), nullptr, team, bytes, Place::in).contender)->in_place);
      const CatalogRow* row = find_contender(choice.contender);
      ASSERT_NE(row, nullptr) << choice.contender;
      EXPECT_TRUE(can_be_chosen(*row, 0)) << choice.contender;
      EXPECT_TRUE(may_choose(chooser(), nullptr, *row));
      if (in_turn.empty() || in_turn.back() != choice.contender) in_turn.emplace_back(choice.contender);
    }
    EXPECT_EQ(std::set<std::string>(in_turn.begin(), in_turn.end()).size(), in_turn.size()) << "no way back";
    EXPECT_EQ(in_turn.size(), ranks == 2 ? 2u : 3u) << ranks;
    // What is chosen for more ranks never moves more bytes than its rivals by more than a hop is worth.
    const auto moved = [&](std::string_view name) {
      return *find_contender(name)->wire_bytes_theory(team, 8 * mib);
    };
    const std::string_view chosen = choice_of(chooser(), nullptr, team, 8 * mib, Place::out).contender;
    for (const std::string& other : in_turn) EXPECT_LE(moved(chosen), moved(other) + 512 * kib) << ranks;
  }
}

TEST(Auto, APlanResolvesItAndRowsSayWhatRan) {
  const std::string chosen_name(chooser().contender);
  Sweep sweep;
  sweep.min_bytes = 1 * kib;
  sweep.max_bytes = 64 * kib;
  sweep.contenders = {chosen_name};
  sweep.modes = {Mode::pipelined};
  Machine machine{.evidence = Evidence::measured, .ranks = 2, .bundles = {"13.0-nvrtc"}, .nccls = {}};
  machine.tuning = some_tuning();
  const Plan plan = make_plan(sweep, machine);
  ASSERT_EQ(plan.cells.size(), 7u);
  for (const Cell& cell : plan.cells) {
    const Choice choice = choice_of(chooser(), &*machine.tuning, {2, 0}, cell.bytes, Place::out);
    EXPECT_EQ(cell.contender, choice.contender);
    EXPECT_EQ(cell.blocks, choice.shape.blocks);
    EXPECT_EQ(cell.threads, choice.shape.threads);
    EXPECT_EQ(contender_name(cell), chosen_name);
    EXPECT_TRUE(cell_name(cell).starts_with(chosen_name + "/13.0-nvrtc/bf16/n2/"));
  }
  const Cell& cell = plan.cells[2];
  const test::DoubleBackend backend(Evidence::measured);
  const Row row = measure(backend, cell, test::right_outcome({2, 3}), {.gpus = 2, .launch = 0, .limits = {}});
  EXPECT_EQ(row->contender, chosen_name);
  EXPECT_EQ(row->ran, choosable()[1] + " 8x256");
  EXPECT_EQ(row->wire_bytes_theory, find_contender(cell.contender)->wire_bytes_theory({2, 0}, cell.bytes));
  // Without a tuning the row's own rule, in the catalog's shapes.
  machine.tuning.reset();
  for (const Cell& other : make_plan(sweep, machine).cells) {
    EXPECT_EQ(other.contender, choice_of(chooser(), nullptr, {2, 0}, other.bytes, Place::out).contender);
    EXPECT_EQ(other.blocks, 0u);
    EXPECT_EQ(contender_name(other), chosen_name);
  }
}

bool holds(const std::vector<LaunchShape>& grid, std::uint32_t blocks, std::uint32_t threads) {
  return std::ranges::any_of(
      grid, [&](LaunchShape shape) { return shape.blocks == blocks && shape.threads == threads; });
}

TEST(ShapeGrid, HasTheShapesThatWereFoundBest) {
  // Found by hand on 2x H200 for messages that go whole to the peer.
  const std::tuple<std::uint64_t, std::uint32_t, std::uint32_t> found[] = {
      {1 * kib, 1, 128},    {4 * kib, 8, 32},     {16 * kib, 16, 64},   {64 * kib, 64, 64},
      {128 * kib, 64, 128}, {256 * kib, 256, 64}, {512 * kib, 512, 64}, {1 * mib, 256, 256},
      {2 * mib, 1024, 128}, {4 * mib, 264, 512},  {64 * mib, 264, 512}};
  for (const CatalogRow& row : catalog()) {
    if (!can_be_chosen(row, 0)) continue;
    for (const auto& [bytes, blocks, threads] : found)
      EXPECT_TRUE(holds(shape_grid(row, {2, 0}, bytes), blocks, threads))
          << bytes << ' ' << blocks << 'x' << threads;
    for (const std::uint32_t ranks : {2u, 3u, 8u}) {
      for (std::uint64_t bytes = 2; bytes <= 256 * mib; bytes *= 3) {
        const auto grid = shape_grid(row, {ranks, 0}, bytes);
        const LaunchShape own = row.shape({ranks, 0}, bytes);
        EXPECT_TRUE(grid.front().blocks == own.blocks && grid.front().threads == own.threads);
        EXPECT_LE(grid.size(), 32u) << bytes;
        for (const auto [blocks, threads] : grid) {
          EXPECT_TRUE(blocks >= 1 && blocks <= static_cast<std::uint32_t>(max_blocks));
          EXPECT_TRUE(threads >= 32 && threads <= static_cast<std::uint32_t>(max_threads) &&
                      threads % 32 == 0);
        }
      }
    }
  }
}

// A machine whose costs are known: a cell takes cost(cell) times luck(cell, launch).
struct Numbers {
  std::function<double(const Cell&)> cost_us;
  std::function<double(const Cell&, std::uint32_t launch)> luck = [](const Cell&, std::uint32_t) {
    return 1.0;
  };
  std::function<void(const Cell&, Outcome&)> meddle = [](const Cell&, Outcome&) {};
  std::vector<std::string> visited = {};  // in order, with the launch in front
  std::uint32_t launches = 0;

  std::vector<SizeResult> search(const TuneAsk& ask) {
    launches = 0;
    visited.clear();
    const TuneHooks hooks{
        .launch =
            [&] {
              ++launches;
              return std::make_unique<test::DoubleBackend>(Evidence::measured);
            },
        .run =
            [&](Backend&, const Cell& cell) {
              const double us = cost_us(cell) * luck(cell, launches - 1);
              Outcome outcome = test::right_outcome({us, us, us});
              outcome.ran = std::to_string(cell.blocks) + "x" + std::to_string(cell.threads);
              meddle(cell, outcome);
              return outcome;
            },
        .heard =
            [&](const Backend&, const Cell& cell, const Outcome&, std::uint32_t launch) {
              EXPECT_EQ(launch, launches - 1);
              visited.push_back(std::to_string(launch) + " " + cell_name(cell) + " " +
                                std::to_string(cell.blocks) + "x" + std::to_string(cell.threads));
            },
        .progress = [](double done, double total, const std::string&) { EXPECT_LE(done, total); }};
    return arb::search(ask, hooks);
  }
};

TuneAsk small_ask() {
  return {.sizes = {1 * kib, 64 * kib, 4 * mib},
          .dtype = Dtype::bf16,
          .ranks = 2,
          .island_ranks = 0,
          .bundle = "13.0-nvrtc",
          .nccl = "2.28.9+cuda13.0",
          .contenders = {}};
}

// The planted best of each size: a contender and a shape from its grid.
struct Planted {
  std::string contender;
  LaunchShape shape;
};
std::map<std::uint64_t, Planted> plant(const TuneAsk& ask) {
  const auto names = choosable();
  std::map<std::uint64_t, Planted> planted;
  std::size_t turn = 0;
  for (const std::uint64_t bytes : ask.sizes) {
    const std::string& name = names[turn++ % names.size()];
    const auto grid = shape_grid(*find_contender(name), {ask.ranks, 0}, bytes);
    planted[bytes] = {name, grid[grid.size() / 2]};
  }
  return planted;
}
double planted_us(const std::map<std::uint64_t, Planted>& planted, const Cell& cell) {
  if (find_contender(cell.contender)->source == Source::nccl) return 9;
  const Planted& best = planted.at(cell.bytes);
  const auto off = [](std::uint32_t a, std::uint32_t b) { return std::abs(std::log2(a) - std::log2(b)); };
  const double shape = 0.03 * (off(cell.blocks, best.shape.blocks) + off(cell.threads, best.shape.threads));
  return (cell.contender == best.contender ? 5 : 5.2) * (1 + shape);
}

TEST(TuneSearch, FindsThePlantedBestOfEverySize) {
  const TuneAsk ask = small_ask();
  const auto planted = plant(ask);
  Numbers machine{.cost_us = [&](const Cell& cell) { return planted_us(planted, cell); }};
  const auto results = machine.search(ask);
  EXPECT_EQ(machine.launches, 1 + ask.launches);
  const auto tuned = winners(results, Evidence::measured);
  ASSERT_EQ(tuned.size(), ask.sizes.size());
  for (const TunedSize& entry : tuned) {
    const Planted& best = planted.at(entry.bytes);
    EXPECT_EQ(entry.contender, best.contender);
    EXPECT_EQ(entry.shape.blocks, best.shape.blocks) << entry.bytes;
    EXPECT_EQ(entry.shape.threads, best.shape.threads) << entry.bytes;
    EXPECT_DOUBLE_EQ(entry.p50_us, 5);
    EXPECT_EQ(entry.launches, ask.launches);
  }
  for (const SizeResult& result : results) {
    EXPECT_EQ(result.nccl_us, 9);
    EXPECT_EQ(result.finalists.size(), finalists_of_each);
    // A crossover is seen from both sides.
    EXPECT_TRUE(std::ranges::any_of(result.finalists, [&](const Finalist& finalist) {
      return finalist.contender != result.finalists.front().contender;
    }));
  }
  const std::string table = crossover_table(results);
  for (const auto& [bytes, best] : planted) EXPECT_NE(table.find(best.contender), std::string::npos) << table;
  EXPECT_NE(table.find("# crossovers: "), std::string::npos) << table;
}

// A bad shape that is lucky once comes out best of the search, and is not chosen.
TEST(TuneSearch, TheLuckiestDoesNotWin) {
  const TuneAsk ask = small_ask();
  const auto planted = plant(ask);
  Numbers machine{.cost_us = [&](const Cell& cell) { return planted_us(planted, cell); },
                  .luck =
                      [&](const Cell& cell, std::uint32_t launch) {
                        const bool mine = cell.contender == choosable().back() && cell.threads == 512;
                        return mine && launch == 0 ? 0.9 : 1.0;
                      }};
  const auto results = machine.search(ask);
  for (const TunedSize& entry : winners(results, Evidence::measured)) {
    EXPECT_EQ(entry.contender, planted.at(entry.bytes).contender) << entry.bytes;
    EXPECT_DOUBLE_EQ(entry.p50_us, 5) << entry.bytes;
  }
}

TEST(TuneSearch, ASeedFixesTheOrder) {
  const auto planted = plant(small_ask());
  Numbers machine{.cost_us = [&](const Cell& cell) { return planted_us(planted, cell); }};
  TuneAsk ask = small_ask();
  machine.search(ask);
  const auto first = machine.visited;
  machine.search(ask);
  EXPECT_EQ(machine.visited, first);
  ask.seed = 2;
  machine.search(ask);
  EXPECT_NE(machine.visited, first);
}

TEST(TuneSearch, WhatCannotWinIsNotSearchedFurther) {
  TuneAsk ask = small_ask();
  ask.sizes = {64 * kib};
  const std::string slow = choosable().front();
  Numbers machine{.cost_us = [&](const Cell& cell) { return cell.contender == slow ? 50.0 : 5.0; }};
  machine.search(ask);
  const auto cells_of = [&](const std::string& contender) {
    return std::ranges::count_if(
        machine.visited, [&](const std::string& cell) { return cell.starts_with("0 " + contender + "/"); });
  };
  EXPECT_EQ(cells_of(slow), 1);
  EXPECT_GT(cells_of(choosable().back()), 5);
}

TEST(TuneSearch, WhatIsWrongOrDoesNotRunIsNeverChosen) {
  TuneAsk ask = small_ask();
  ask.sizes = {kib, 2 * kib, 4 * kib, 8 * kib};
  const auto names = choosable();
  const std::string wrong = names[0];
  const std::string broken = names[1];
  Numbers machine{.cost_us = [&](const Cell& cell) { return cell.contender == names.back() ? 5.0 : 4.0; },
                  .meddle =
                      [&](const Cell& cell, Outcome& outcome) {
                        if (cell.contender == wrong) outcome.correct = false;
                        if (cell.contender == broken) {
                          outcome = Outcome{};
                          outcome.failure = "it said no";
                        }
                      }};
  for (const TunedSize& entry : winners(machine.search(ask), Evidence::measured))
    EXPECT_TRUE(entry.contender != wrong && entry.contender != broken);
  const auto tries = [&](const std::string& name) {
    return std::ranges::count_if(machine.visited, [&](const std::string& cell) {
      return cell.find(' ' + name + '/') != std::string::npos;
    });
  };
  EXPECT_EQ(tries(broken), most_tune_failures) << "each may cost a deadline";
  // Nothing right: no winner, and no invented one.
  machine.meddle = [](const Cell&, Outcome& outcome) { outcome.correct = false; };
  const auto results = machine.search(ask);
  EXPECT_TRUE(winners(results, Evidence::measured).empty());
  EXPECT_NE(crossover_table(results).find("none ran right"), std::string::npos);
}

// A worker cuts a grid to the blocks that are resident: shapes that come out the same are one candidate, and what is
// written down is what ran.
TEST(TuneSearch, ShapesThatAreCutToOneAreOneCandidate) {
  const std::uint32_t resident = 264;
  Numbers machine{.cost_us = [](const Cell& cell) { return cell.threads == 512 ? 5.0 : 6.0; },
                  .meddle =
                      [&](const Cell& cell, Outcome& outcome) {
                        outcome.ran = std::to_string(std::min(cell.blocks, resident)) + "x" +
                                      std::to_string(cell.threads);
                      }};
  TuneAsk ask = small_ask();
  ask.sizes = {16 * mib};
  ask.contenders = {choosable().front()};
  const auto results = machine.search(ask);
  ASSERT_EQ(results.size(), 1u);
  std::set<std::pair<std::uint32_t, std::uint32_t>> shapes;
  for (const Finalist& finalist : results[0].finalists) {
    EXPECT_LE(finalist.shape.blocks, resident);
    EXPECT_TRUE(shapes.insert({finalist.shape.blocks, finalist.shape.threads}).second);
  }
  EXPECT_GT(shapes.size(), 1u);
}

TEST(TuneSearch, AFailureAtOneSizeCostsThatSizeOnly) {
  const auto names = choosable();
  const std::string& good_when_small = names[0];
  Numbers machine{.cost_us = [&](const Cell& cell) { return cell.contender == good_when_small ? 4.0 : 5.0; },
                  .meddle =
                      [&](const Cell& cell, Outcome& outcome) {
                        if (cell.contender == good_when_small && cell.bytes > mib) outcome.correct = false;
                      }};
  const auto won = winners(machine.search(small_ask()), Evidence::measured);
  ASSERT_EQ(won.size(), 3u);
  EXPECT_EQ(won[0].contender, good_when_small);
  EXPECT_EQ(won[1].contender, good_when_small);
  EXPECT_NE(won[2].contender, good_when_small);
}

// What hangs with 20 calls in a graph may be the best where there are 5.
TEST(TuneSearch, FailuresInLongGraphsDoNotCostTheShortOnes) {
  const std::string name = choosable()[0];
  Numbers machine{.cost_us = [&](const Cell& cell) { return cell.contender == name ? 4.0 : 5.0; },
                  .meddle =
                      [&](const Cell& cell, Outcome& outcome) {
                        if (cell.contender == name && cell.calls_per_graph > 5) outcome.correct = false;
                      }};
  TuneAsk ask = small_ask();
  ask.sizes = {kib, 2 * kib, 4 * kib, 8 * kib, 64 * mib};
  const auto won = winners(machine.search(ask), Evidence::measured);
  ASSERT_EQ(won.size(), 5u);
  EXPECT_NE(won[3].contender, name);
  EXPECT_EQ(won[4].contender, name);
}

TEST(TuneSearch, OnlyWhatIsAskedForIsChosenFrom) {
  TuneAsk ask = small_ask();
  ask.contenders = {choosable().back()};
  ask.nccl = "";
  Numbers machine{.cost_us = [](const Cell&) { return 5.0; }};
  for (const TunedSize& entry : winners(machine.search(ask), Evidence::measured))
    EXPECT_EQ(entry.contender, choosable().back());
}

}  // namespace
}  // namespace arb
