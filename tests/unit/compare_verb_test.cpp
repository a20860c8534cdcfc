// The whole verb `compare` on machines that exist in numbers only: verdicts, files, interrupts, refusals.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catalog.h"
#include "compare.h"
#include "coordinator/worker_process.h"
#include "fake_host.h"
#include "has.h"
#include "made_bundle.h"
#include "report_csv.h"
#include "results_folder.h"
#include "scratch.h"

namespace arb {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::has;

struct Result {
  int status = -1;
  std::string out;
  std::string err;
  fs::path folder;
};

class CompareVerb : public testing::Test {
 protected:
  [[nodiscard]] CompareOptions options() const {
    CompareOptions options;
    options.a = {"toolkit=12.8"};
    options.b = {"toolkit=13.0"};
    options.run.min_bytes = 1 << 10;
    options.run.max_bytes = 16 << 20;
    options.run.factor = 128;
    options.run.results = scratch_.path() / "results";
    options.run.command = "arbench compare --a toolkit=12.8 --b toolkit=13.0";
    options.arguments = {"compare", "--a", "toolkit=12.8", "--b", "toolkit=13.0"};
    return options;
  }

  Result compare(const CompareOptions& options, const test::FakeMachine& machine = {}) {
    std::ostringstream out;
    std::ostringstream err;
    const std::set<fs::path> before = folders();
    Result result;
    {
      const Interrupt interrupt;
      result.status = compare_verb_on(
          options, {.out = out, .err = err}, interrupt,
          [&](const std::string&, const Say&) { return std::make_unique<test::FakeHost>(machine); });
    }
    clear_signals();
    result.out = out.str();
    result.err = err.str();
    for (const fs::path& folder : folders()) {
      EXPECT_FALSE(folder.filename().string().starts_with('.')) << "a temporary folder stayed behind";
      if (!before.contains(folder)) result.folder = folder;
    }
    return result;
  }

  [[nodiscard]] std::set<fs::path> folders() const {
    std::set<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(scratch_.path() / "results", error))
      found.insert(entry.path());
    return found;
  }

  // A signal that a test raised must not reach the next one.
  static void clear_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    const timespec now{};
    while (::sigtimedwait(&signals, nullptr, &now) > 0) {
    }
  }

  // Interrupts in launch 22: blocks 0 to 6 are whole.
  static test::FakeMachine interrupted_machine(int signal = SIGINT) {
    test::FakeMachine machine;
    machine.meddle = [signal](Role, int launch, const Cell&, Outcome&) {
      if (launch == 22) ::raise(signal);
    };
    return machine;
  }

  test::Scratch scratch_;
};

TEST_F(CompareVerb, AAgainstA) {
  CompareOptions asked = options();
  asked.b = asked.a;
  const Result result = compare(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.out, " 0 FASTER, 0 SLOWER")) << result.out;
  EXPECT_TRUE(has(result.out, "A 12.8")) << result.out;
  ASSERT_FALSE(result.folder.empty());
  EXPECT_TRUE(result.folder.filename().string().ends_with("-2xPretended-compare"));
  for (const char* file : {"rows.csv", "verdicts.csv", "comparison.json", "comparison.md",
                           "smaller-is-better.json", "benchmark.json", "benchmark-a.json", "benchmark-b.json",
                           "environment.json", "manifest.json", "command.txt", "plan.json", "blocks.jsonl"}) {
    EXPECT_TRUE(fs::is_regular_file(result.folder / file)) << file;
  }
  // Every launch of every block is in rows.csv.
  const PublishedRun run = read_results(result.folder);
  const json comparison = json::parse(test::read_file(result.folder / "comparison.json"));
  EXPECT_EQ(run.rows.size(), comparison.at("cells").size() * 36);
  EXPECT_EQ(run.rows.back()->launch, 35u);
  EXPECT_TRUE(
      test::read_file(result.folder / "verdicts.csv")
          .starts_with("contender,dtype,ranks,bytes,mode,a,b,blocks,a_us,b_us,change,ci_low,ci_high,q,margin,"
                       "mde,verdict,why\n"));
  const json benchmark = json::parse(test::read_file(result.folder / "benchmark-a.json"));
  EXPECT_EQ(benchmark.at("benchmarks").size(), comparison.at("cells").size() * 12);
  EXPECT_EQ(benchmark.at("benchmarks")[1].at("repetition_index"), 1);
}

TEST_F(CompareVerb, PlantedEffectsComeOutWithTheirCause) {
  test::FakeMachine machine;
  machine.effect = [](Role role, const Cell& cell) {
    return role == Role::b && !cell.bundle.empty() ? std::log(1.03) : 0;
  };
  CompareOptions asked = options();
  asked.attribute = true;
  const Result result = compare(asked, machine);
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_TRUE(has(result.out, "compiler: SASS differs, regs 40->38")) << result.out;
  EXPECT_TRUE(has(result.out, "negative controls held"));
  const json comparison = json::parse(test::read_file(result.folder / "comparison.json"));
  for (const json& cell : comparison.at("cells")) {
    const bool nccl = find_contender(cell.at("contender").get<std::string>())->source == Source::nccl;
    EXPECT_EQ(cell.at("verdict"), nccl ? "EQUIVALENT" : "SLOWER") << cell.dump();
  }
}

TEST_F(CompareVerb, CrossesCompilersAndNccls) {
  test::FakeMachine machine;
  machine.effect = [](Role role, const Cell& cell) {
    const bool nccl = role == Role::b || role == Role::nccl_of_b;
    return nccl && cell.bundle.empty() ? std::log(0.94) : 0;
  };
  CompareOptions asked = options();
  asked.a = {"toolkit=12.8,nccl=/somewhere/libnccl.so.2"};
  asked.attribute = true;
  const Result result = compare(asked, machine);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.err, "12 blocks of 5 launches each")) << result.err;
  EXPECT_TRUE(has(result.out, "NCCL: NCCL 2.28.3+cuda12.9 -> 2.28.9+cuda13.0")) << result.out;
}

TEST_F(CompareVerb, AnInterruptKeepsWholeBlocksAndResumeGoesOn) {
  const Result cut = compare(options(), interrupted_machine());
  EXPECT_EQ(cut.status, 5);
  EXPECT_TRUE(has(cut.err, "7 whole blocks are kept; `arbench compare --resume ")) << cut.err;
  EXPECT_TRUE(cut.folder.filename().string().ends_with("-compare-interrupted"));
  EXPECT_FALSE(fs::exists(cut.folder / "verdicts.csv"));
  const std::string blocks_before = test::read_file(cut.folder / "blocks.jsonl");
  EXPECT_EQ(arguments_to_resume(cut.folder), options().arguments);

  CompareOptions again = options();
  again.resume = cut.folder;
  test::FakeMachine machine;
  machine.seed = 2;
  const Result whole = compare(again, machine);
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_TRUE(has(whole.err, "going on after 7 whole blocks")) << whole.err;
  EXPECT_TRUE(test::read_file(whole.folder / "blocks.jsonl").starts_with(blocks_before));
  EXPECT_EQ(test::read_file(cut.folder / "blocks.jsonl"), blocks_before);
  const PublishedRun run = read_results(whole.folder);
  EXPECT_EQ(run.rows.back()->launch, 35u);
  EXPECT_EQ(run.rows.size() % 36, 0u);
  // A whole one has nothing to go on with.
  EXPECT_THROW(arguments_to_resume(whole.folder), EnvironmentError);
}

TEST_F(CompareVerb, ATerminalThatGoesAwayCostsNoMoreThanAnInterrupt) {
  const auto before = ::signal(SIGHUP, SIG_DFL);
  const Result cut = compare(options(), interrupted_machine(SIGHUP));
  EXPECT_EQ(cut.status, 5);
  EXPECT_TRUE(has(cut.err, "7 whole blocks are kept")) << cut.err;
  // Under nohup it goes on.
  ::signal(SIGHUP, SIG_IGN);
  const Result whole = compare(options(), interrupted_machine(SIGHUP));
  EXPECT_EQ(whole.status, 0) << whole.err;
  ::signal(SIGHUP, before);
}

TEST_F(CompareVerb, ResumeRefusesAnotherMachineAndCutRecords) {
  const Result cut = compare(options(), interrupted_machine());
  CompareOptions again = options();
  again.resume = cut.folder;
  test::FakeMachine other;
  other.driver = "590.10";
  Result refused = compare(again, other);
  EXPECT_EQ(refused.status, 5);
  EXPECT_TRUE(has(refused.err, "with driver 580.82.07 and this is 590.10")) << refused.err;
  EXPECT_TRUE(refused.folder.empty());

  again.b = {"toolkit=13.1"};
  refused = compare(again);
  EXPECT_EQ(refused.status, 5);
  EXPECT_TRUE(has(refused.err, "no longer what it was")) << refused.err;

  const std::string blocks = test::read_file(cut.folder / "blocks.jsonl");
  test::write_file(cut.folder / "blocks.jsonl", blocks.substr(0, blocks.size() - 10));
  again = options();
  again.resume = cut.folder;
  refused = compare(again);
  EXPECT_EQ(refused.status, 5);
  EXPECT_TRUE(has(refused.err, "blocks.jsonl is cut")) << refused.err;
}

TEST_F(CompareVerb, AnInterruptBeforeTheFirstBlockKeepsNothing) {
  test::FakeMachine machine;
  machine.meddle = [](Role, int, const Cell&, Outcome&) { ::raise(SIGINT); };
  const Result result = compare(options(), machine);
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(result.folder.empty());
  EXPECT_TRUE(has(result.err, "nothing is kept")) << result.err;
}

TEST_F(CompareVerb, WrongDataAndLostWorkersEndIt) {
  test::FakeMachine machine;
  machine.meddle = [](Role role, int launch, const Cell& cell, Outcome& outcome) {
    if (role != Role::b || launch < 5 || cell.bytes != 128 << 10) return;
    outcome.correct = false;
    outcome.samples_us.clear();
    outcome.wrong = "element 7 of rank 1 is 3 instead of 2";
  };
  Result result = compare(options(), machine);
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.err, "is WRONG in arm b, so there is no verdict: element 7")) << result.err;
  EXPECT_TRUE(result.folder.filename().string().ends_with("-interrupted"));

  machine.meddle = [](Role, int, const Cell&, Outcome&) {
    throw WorkerLost(WorkerLost::Cause::died, "the kernels' worker was lost");
  };
  result = compare(options(), machine);
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(result.folder.empty());
}

TEST_F(CompareVerb, AFailedGateGivesNoVerdict) {
  test::FakeMachine machine;
  machine.meddle_gpus = [](Role role, std::vector<GpuDuring>& gpus) {
    if (role == Role::b) gpus[0].sm_clock_mhz = 1700;
  };
  const Result result = compare(options(), machine);
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(has(result.out, "no verdict: the SM clock of rank 0")) << result.out;
  EXPECT_FALSE(has(result.out, "EQUIVALENT  "));
  EXPECT_FALSE(fs::exists(result.folder / "verdicts.csv"));
  EXPECT_TRUE(fs::exists(result.folder / "rows.csv"));
}

TEST_F(CompareVerb, ACellThatDoesNotRunIsLeftOut) {
  test::FakeMachine machine;
  machine.meddle = [](Role, int, const Cell& cell, Outcome& outcome) {
    if (cell.bytes != 128 << 10) return;
    outcome = Outcome{};
    outcome.failure = "its blocks do not fit on this GPU at once";
  };
  const Result result = compare(options(), machine);
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(has(result.err, "is not tried again: its blocks do not fit")) << result.err;
  EXPECT_TRUE(has(result.out, "EQUIVALENT")) << result.out;
}

TEST_F(CompareVerb, StrictAndExtended) {
  test::FakeMachine machine;
  machine.launch_noise = 0.012;
  machine.effect = [](Role role, const Cell&) { return role == Role::b ? 0.007 : 0; };
  CompareOptions asked = options();
  // Few cells: how far twelve blocks go depends on how many share the alarm rate.
  for (const CatalogRow& row : catalog().first(4)) asked.run.contenders.emplace_back(row.contender);
  asked.strict = true;
  EXPECT_EQ(compare(asked, machine).status, 4);
  asked.strict = false;
  asked.extend = true;
  const Result result = compare(asked, machine);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.err, "the planned extension to 24 runs")) << result.err;
  EXPECT_TRUE(has(result.out, "# 24 blocks")) << result.out;
  EXPECT_TRUE(has(result.out, "97.5% CI")) << result.out;
  EXPECT_TRUE(has(result.err, "after 5 blocks: half of the cells vary by")) << result.err;
}

TEST_F(CompareVerb, ThePilotPromisesNoFewerBlocksThanVerdictsNeed) {
  const Result result = compare(options());
  EXPECT_TRUE(has(result.err, "; 6 blocks find a difference of 2% there")) << result.err;
}

TEST_F(CompareVerb, ThePilotSaysHowLaunchesVary) {
  // The placebo is off by 3% to either side in turn: differences vary by 3.3%, and two launches each by 1/sqrt(2) of that.
  test::FakeMachine machine;
  machine.launch_noise = 0;
  machine.drift = 0;
  std::map<std::string, int> launches;
  machine.effect = [&](Role role, const Cell& cell) {
    if (role != Role::placebo) return 0.0;
    return ++launches[cell_name(cell)] % 2 == 0 ? 0.03 : -0.03;
  };
  const Result result = compare(options(), machine);
  EXPECT_TRUE(has(result.err, "vary by 2.3% or less between launches of A; 24 blocks find")) << result.err;
}

TEST_F(CompareVerb, ContendersAreAnArmToo) {
  std::vector<std::string> kernels;
  for (const CatalogRow& row : catalog()) {
    if (row.source == Source::kernel) kernels.emplace_back(row.contender);
  }
  ASSERT_GE(kernels.size(), 2u);
  CompareOptions asked = options();
  asked.a = {"contender=" + kernels[0]};
  asked.b = {"contender=" + kernels[1]};
  asked.format = CompareFormat::csv;
  const Result result = compare(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.out, "\n" + kernels[0] + ":" + kernels[1] + ",bf16,2,1024,")) << result.out;
}

TEST_F(CompareVerb, Refusals) {
  const auto refused = [&](const std::function<void(CompareOptions&)>& change, int status,
                           const std::string& part) {
    CompareOptions asked = options();
    change(asked);
    const Result result = compare(asked);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_TRUE(has(result.err, part)) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << "one sentence: " << result.err;
    EXPECT_TRUE(result.folder.empty());
  };
  refused([](CompareOptions& asked) { asked.blocks = 5; }, 1, "fewer than 6");
  refused([](CompareOptions& asked) { asked.a = asked.b = {}; }, 1, "nothing to compare");
  refused([](CompareOptions& asked) { asked.run.check = false; }, 1, "unchecked data");
  refused([](CompareOptions& asked) { asked.run.places = {"in", "out"}; }, 1, "one --place");
  refused([](CompareOptions& asked) { asked.run.contenders = {"ncll"}; }, 1, "did you mean 'nccl'");
  refused([](CompareOptions& asked) { asked.run.emulate = true; }, 5, "no time");
  refused([](CompareOptions& asked) { asked.sides = {"x", "y"}; }, 1, "not both");
  refused(
      [](CompareOptions& asked) {
        asked.a = asked.b;
        asked.attribute = true;
      },
      1, "differ in neither");
  refused([](CompareOptions& asked) { asked.b = {"toolkit=13.0-nvcc"}; }, 1, "different kinds of compiler");
  test::FakeMachine machine;
  machine.without_nccl = {Role::b};
  const Result result = compare(options(), machine);
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(has(result.err, "in one arm only")) << result.err;
}

TEST_F(CompareVerb, AnNcclWithoutWindowsCostsOnlyTheContenderThatNeedsThem) {
  test::FakeMachine machine;
  machine.without_windows = {Role::a, Role::placebo};
  const Result result = compare(options(), machine);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.err, "is left out: one arm's NCCL has no symmetric windows")) << result.err;
  const json comparison = json::parse(test::read_file(result.folder / "comparison.json"));
  bool nccl = false;
  for (const json& cell : comparison.at("cells")) {
    const CatalogRow* const row = find_contender(cell.at("contender").get<std::string>());
    EXPECT_FALSE(needs_windows(*row));
    nccl = nccl || row->source == Source::nccl;
  }
  EXPECT_TRUE(nccl);
}

// --- finished runs
// ------------------------------------------------------------------------------------------

class CompareRuns : public CompareVerb {
 protected:
  // A published run of one contender: `launches` launches with times around `us`.
  fs::path make_run(
      const std::string& name, double us, int launches = 5, const std::string& uuid = "GPU-0",
      Evidence evidence = Evidence::measured,
      const std::function<void(Cell&, Outcome&)>& meddle = [](Cell&, Outcome&) {},
      const std::string& more_environment = "") {
    ResultsFolder folder(scratch_.path() / "runs");
    const test::DoubleBackend backend(evidence);
    for (int launch = 0; launch < launches; ++launch) {
      for (const std::uint64_t bytes : {1u << 10, 64u << 10, 8u << 20}) {
        Cell cell;
        cell.contender = catalog().front().contender;
        cell.bundle = "13.0-nvrtc";
        cell.ranks = 2;
        cell.bytes = bytes;
        cell.samples = 3;
        const double time_us = (us + static_cast<double>(bytes) / 300e3) * (1 + 0.001 * (launch % 3));
        const bool timed = evidence == Evidence::measured;
        Outcome outcome =
            test::right_outcome(timed ? std::vector<double>(3, time_us) : std::vector<double>{});
        meddle(cell, outcome);
        folder.add(measure(backend, cell, outcome,
                           {.gpus = 2, .launch = static_cast<std::uint32_t>(launch), .limits = {}}));
      }
    }
    folder.write("benchmark.json", "{}");
    folder.write("manifest.json", "{}");
    folder.write("environment.json",
                 R"({"driver": "580.82.07", "gpus": [{"uuid": ")" + uuid + R"("}])" + more_environment + "}");
    return folder.publish(name, {.command = "arbench run", .version = "0", .started = "now", .remarks = {}});
  }

  // What a run that watched its GPU says of it.
  static std::string during(double sm_clock_mhz) {
    return fmt::format(
        R"(, "gpus_during": [{{"uuid": "GPU-0", "sm_clock_mhz": {}, "memory_clock_mhz": 2619, )"
        R"("events": [], "new_errors": 0}}])",
        sm_clock_mhz);
  }

  Result compare_runs(const fs::path& a, const fs::path& b, const fs::path& history = {},
                      bool strict = false) {
    CompareOptions asked = options();
    asked.a.clear();
    asked.b.clear();
    asked.sides = {a.string(), b.string()};
    asked.history = history;
    asked.strict = strict;
    return compare(asked);
  }
};

TEST_F(CompareRuns, SayWhatTheyProveAndWhatNot) {
  const fs::path a = make_run("a", 5);
  const fs::path b = make_run("b", 5.5);
  Result result = compare_runs(a, b);
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_TRUE(has(result.out, "unpaired: drift between them counts as a difference")) << result.out;
  EXPECT_TRUE(has(result.out, "SLOWER"));
  EXPECT_TRUE(has(result.out, "nothing is known of drift"));
  result = compare_runs(a, a);
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(has(result.out, "0 SLOWER, 3 EQUIVALENT")) << result.out;
}

TEST_F(CompareRuns, HaveGates) {
  const auto run = [&](const std::string& name, double sm_clock_mhz) {
    return make_run(
        name, 5, 5, "GPU-0", Evidence::measured, [](Cell&, Outcome&) {}, during(sm_clock_mhz));
  };
  const fs::path a = run("a", 1980);
  EXPECT_EQ(compare_runs(a, run("b", 1979), {}, true).status, 0);
  const Result slow = compare_runs(a, run("slow", 1900));
  EXPECT_EQ(slow.status, 5);
  EXPECT_TRUE(has(slow.out, "no verdict: the SM clock of rank 0 was 1980 MHz under A and 1900 MHz"))
      << slow.out;
  EXPECT_FALSE(has(slow.out, "EQUIVALENT  "));
  // A run of an arbench that did not watch.
  const fs::path blind = make_run("blind", 5);
  const Result result = compare_runs(a, blind);
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(has(result.out, "gate clocks unchecked: a run does not say")) << result.out;
  EXPECT_EQ(compare_runs(a, blind, {}, true).status, 5);
  const Result other = compare_runs(a, make_run("other", 5, 5, "GPU-7"));
  EXPECT_EQ(other.status, 5);
  EXPECT_TRUE(has(other.out, "no verdict: A was measured on GPU-0 and B on GPU-7")) << other.out;
  const fs::path throttled = make_run("throttled", 5, 5, "GPU-0", Evidence::measured,
                                      [](Cell&, Outcome& outcome) { outcome.flags = {"throttled"}; });
  const Result held = compare_runs(a, throttled);
  EXPECT_EQ(held.status, 5);
  EXPECT_TRUE(has(held.out, "0 of 15 rows of A and 15 of 15 of B")) << held.out;
}

TEST_F(CompareRuns, AreCalledByTheirFoldersWhereNothingElseTellsThemApart) {
  CompareOptions asked = options();
  asked.a.clear();
  asked.b.clear();
  asked.sides = {make_run("before", 5).string(), make_run("after", 5).string() + "/"};
  asked.format = CompareFormat::markdown;
  const Result result = compare(asked);
  EXPECT_TRUE(has(result.out, fmt::format("### Allreduce: B {} against A {}\n",
                                          fs::path(asked.sides[1]).parent_path().filename().string(),
                                          fs::path(asked.sides[0]).filename().string())))
      << result.out;
}

TEST_F(CompareRuns, HistoryKnowsTheDrift) {
  const fs::path a = make_run("a", 5);
  const fs::path b = make_run("b", 5.5);
  std::string history;
  const std::string start = std::string(catalog().front().contender) + "/13.0-nvrtc/bf16/n2/";
  for (const double factor : {1.0, 1.1, 0.9, 1.05, 0.95, 1.0}) {
    history += R"({"time": "t", "driver": "580.82.07", "gpus": ["GPU-0"], "good": true, "cells": {)";
    for (const auto& [bytes, us] : {std::pair{1 << 10, 5.0}, {64 << 10, 5.2}, {8 << 20, 33.0}}) {
      history += (bytes == 1 << 10 ? "\"" : ", \"") + start + std::to_string(bytes) +
                 "/out/pipelined/warm\": " + std::to_string(us * factor);
    }
    history += "}}\n";
  }
  test::write_file(scratch_.path() / "history.jsonl", history);
  Result result = compare_runs(a, b, scratch_.path() / "history.jsonl");
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_TRUE(has(result.out, "widened to what nights of the history differ by")) << result.out;

  test::write_file(scratch_.path() / "history.jsonl", history + "{\"time\": \"t\", \"dri\n");
  result = compare_runs(a, b, scratch_.path() / "history.jsonl");
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(has(result.err, "line 7 is no night of ours")) << result.err;
}

TEST_F(CompareRuns, RefuseWhatCannotBeCompared) {
  const fs::path good = make_run("good", 5);
  const auto refused = [&](const fs::path& a, const fs::path& b, const std::string& part) {
    const Result result = compare_runs(a, b);
    EXPECT_EQ(result.status, 5) << result.out;
    EXPECT_TRUE(has(result.err, part)) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  };
  refused(good, scratch_.path() / "nowhere", "no such folder");
  refused(good, make_run("few", 5, 2), "has 2 launches");
  refused(good, make_run("emulated", 5, 5, "GPU-0", Evidence::emulated), "emulated rows");
  const auto unchecked = [](Cell& cell, Outcome&) { cell.check = false; };
  refused(good, make_run("unchecked", 5, 5, "GPU-0", Evidence::measured, unchecked),
          "data that nobody checked");
  const auto other_graphs = [](Cell& cell, Outcome&) { cell.calls_per_graph = 7; };
  refused(good, make_run("graphs", 5, 5, "GPU-0", Evidence::measured, other_graphs), "no cell in common");
  const fs::path processes = make_run("processes", 5);
  std::string elsewhere = test::read_file(processes / "rows.csv");
  const std::string world = read_results(processes).rows.front()->world;
  for (std::size_t at = 0; (at = elsewhere.find("," + world + ",", at)) != std::string::npos;)
    elsewhere.replace(at + 1, world.size(), "processes");
  test::write_file(processes / "rows.csv", elsewhere);
  refused(good, processes, "no cell in common");
  const fs::path cut = make_run("cut", 5);
  const std::string rows = test::read_file(cut / "rows.csv");
  test::write_file(cut / "rows.csv", rows.substr(0, rows.size() - 20));
  refused(good, cut, "is cut");
  const fs::path half = make_run("half", 5);
  fs::rename(half, half.parent_path() / ".half");
  refused(good, half.parent_path() / ".half", "never finished");
  const fs::path comparison = compare(options()).folder;
  refused(good, comparison, "is itself a comparison");
}

// --- static
// -------------------------------------------------------------------------------------------------

TEST_F(CompareVerb, StaticNeedsNoGpu) {
  test::make_bundle(scratch_.path() / "bundles", "12.8-nvrtc");
  test::make_bundle(scratch_.path() / "bundles", "13.0-nvrtc");
  CompareOptions asked;
  asked.static_only = true;
  asked.run.bundles = scratch_.path() / "bundles";
  asked.sides = {"12.8", "13.0-nvrtc"};
  Result result = compare(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.out, "1 of 1 functions have the same SASS")) << result.out;
  asked.sides = {"12.8", (scratch_.path() / "bundles" / "13.0-nvrtc").string()};
  EXPECT_EQ(compare(asked).status, 0);
  asked.sides = {"12.8", "13.7"};
  result = compare(asked);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.err, "no toolkit '13.7'")) << result.err;
  asked.sides = {"12.8"};
  EXPECT_EQ(compare(asked).status, 1);
}

}  // namespace
}  // namespace arb
