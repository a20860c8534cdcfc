// Whole runs on a fake worker: what the user sees, what is left on disk, how the program exits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "fake_box.h"
#include "results_folder.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

class FakeRun : public FakeBox {
 protected:
  // One kernel of ours at 1K, 2K and 4K; 2K is where a fake worker goes wrong.
  [[nodiscard]] RunOptions options(const std::string& behaviour) const {
    RunOptions options = box_options(behaviour);
    options.min_bytes = 1024;
    options.max_bytes = 4096;
    options.samples = 9;
    options.modes = {"pipelined"};
    options.contenders = {first_kernel()};
    options.toolkits = {"13.0"};
    options.command = "arbench run";
    return options;
  }

  [[nodiscard]] Result run(const RunOptions& options) const {
    return say([&](const Terminal& terminal, const Interrupt& interrupt) {
      return run_verb(options, terminal, interrupt);
    });
  }
};

TEST_F(FakeRun, AGoodRunLeavesAllItsFiles) {
  RunOptions asked = options("good");
  asked.toolkits = {};
  asked.modes = {};
  asked.places = {"out", "in"};
  asked.contenders = {first_kernel(), first_nccl()};
  asked.nccl_paths = {nccl_path().string()};
  const Result result = run(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.folder.filename().string(), "-2xPretended_GPU-run"));
  const PublishedRun published = read_results(result.folder);
  EXPECT_EQ(published.rows.size(), 3u * 3u * 4u);
  for (const Row& row : published.rows) {
    EXPECT_EQ(row->evidence, Evidence::measured);
    EXPECT_EQ(row->gpus, 2u);
    EXPECT_TRUE(row.timed() && row->floor_us);
  }
  const auto benchmark = nlohmann::json::parse(test::read_file(result.folder / "benchmark.json"));
  ASSERT_EQ(benchmark["benchmarks"].size(), published.rows.size());
  for (std::size_t i = 0; i < published.rows.size(); ++i) {
    EXPECT_EQ(benchmark["benchmarks"][i]["real_time"].get<double>(), *published.rows[i]->p50_us);
    EXPECT_FALSE(has(benchmark["benchmarks"][i]["name"].get<std::string>(), "manual_time"));
  }
  const auto environment = nlohmann::json::parse(test::read_file(result.folder / "environment.json"));
  EXPECT_EQ(environment["gpus"].size(), 2u);
  EXPECT_EQ(environment["nccl"][0]["version"], "2.28.9+cuda13.0");
  EXPECT_FALSE(environment["limits"].empty());
  const auto manifest = nlohmann::json::parse(test::read_file(result.folder / "manifest.json"));
  EXPECT_EQ(manifest["bundles"].size(), 3u);
  EXPECT_TRUE(has(result.out, "x floor")) << result.out;
}

TEST_F(FakeRun, LaunchesAreRowsOfTheSameName) {
  RunOptions asked = options("good");
  asked.launches = 3;
  const Result result = run(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  const PublishedRun published = read_results(result.folder);
  EXPECT_EQ(published.rows.size(), 9u);
  EXPECT_EQ(published.rows.back()->launch, 2u);
  const auto rows = nlohmann::json::parse(test::read_file(result.folder / "benchmark.json"))["benchmarks"];
  EXPECT_EQ(rows[0]["name"], rows[3]["name"]);
  EXPECT_EQ(rows[3]["repetition_index"], 1);
  EXPECT_EQ(rows[0]["repetitions"], 3);
}

// What a worker does wrong at 2K, and what the run makes of it: the cells before and after are kept.
struct RunFault {
  const char* behaviour;
  int status;
  const char* words;
  const char* flags;
};

class FakeRunFaults : public FakeRun, public testing::WithParamInterface<RunFault> {};

TEST_P(FakeRunFaults, KeepsTheOtherCellsAndSaysWhatHappened) {
  const RunFault& fault = GetParam();
  const auto begin = std::chrono::steady_clock::now();
  const Result result = run(options(fault.behaviour));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(result.status, fault.status) << result.err;
  EXPECT_TRUE(has(result.err, fault.words)) << result.err;
  const PublishedRun published = read_results(result.folder);
  ASSERT_EQ(published.rows.size(), 3u);
  EXPECT_TRUE(published.rows[0].timed());
  EXPECT_FALSE(published.rows[1].timed());
  EXPECT_EQ(published.rows[1]->flags, fault.flags);
  EXPECT_TRUE(published.rows[2].timed()) << "a fresh worker takes over";
  EXPECT_TRUE(has(test::read_file(result.folder / "command.txt"), fault.words)) << "nothing is lost";
  const auto rows = nlohmann::json::parse(test::read_file(result.folder / "benchmark.json"))["benchmarks"];
  EXPECT_EQ(rows[1]["error_occurred"], true);
  EXPECT_FALSE(rows[1].contains("real_time"));
}

INSTANTIATE_TEST_SUITE_P(All, FakeRunFaults,
                         testing::Values(RunFault{"exit", 2, "status 3", "lost failed"},
                                         RunFault{"crash", 2, "signal 11", "lost failed"},
                                         RunFault{"hang", 2, "rank 0 waits for rank 1", "lost failed"},
                                         RunFault{"nonsense", 2, "nonsense", "lost failed"},
                                         RunFault{"nan", 2, "not JSON", "lost failed"},
                                         RunFault{"half_line_and_end", 2, "in the middle", "lost failed"},
                                         RunFault{"half_line_and_hang", 2, "half a line", "lost failed"},
                                         RunFault{"wrong_cell", 2, "another cell", "lost failed"},
                                         RunFault{"flood", 2, "yyy", "lost failed"},
                                         RunFault{"orphan", 2, "signal 9", "lost failed"},
                                         RunFault{"wrong_data", 2, "element 7 of rank 1", ""},
                                         RunFault{"device_hangs", 2, "rank 0 waited for rank 1", "hang"},
                                         RunFault{"not_a_number", 2, "is NaN", "error_not_finite"},
                                         RunFault{"cannot_run", 5, "do not fit", "failed"},
                                         RunFault{"no_samples", 5, "has no samples", "failed"}),
                         [](const auto& info) { return std::string(info.param.behaviour); });

TEST_F(FakeRun, AProcessARankGivesTheSameRows) {
  RunOptions asked = options("rank1:slower");
  asked.contenders = {first_kernel(), first_nccl()};
  asked.nccl_paths = {nccl_path().string()};
  const Result in_threads = run(asked);
  EXPECT_EQ(in_threads.status, 0) << in_threads.err;
  const PublishedRun threads = read_results(in_threads.folder);
  fs::remove_all(results_path());
  asked.world = World::processes;
  const Result in_processes = run(asked);
  EXPECT_EQ(in_processes.status, 0) << in_processes.err;
  EXPECT_TRUE(has(in_processes.out, "as processes")) << in_processes.out;
  const PublishedRun processes = read_results(in_processes.folder);
  ASSERT_EQ(processes.rows.size(), threads.rows.size());
  for (std::size_t i = 0; i < threads.rows.size(); ++i) {
    EXPECT_EQ(threads.rows[i]->world, "threads");
    EXPECT_EQ(processes.rows[i]->world, "processes");
    EXPECT_EQ(processes.rows[i]->samples, threads.rows[i]->samples);
    // The slower rank makes the time.
    const double slower_us = processes.rows[i]->bytes == 2048 ? 100 : 0;
    EXPECT_DOUBLE_EQ(*processes.rows[i]->p50_us, *threads.rows[i]->p50_us + slower_us);
  }
  const auto environment = nlohmann::json::parse(test::read_file(in_processes.folder / "environment.json"));
  EXPECT_EQ(environment["world"], "processes");
  EXPECT_EQ(environment["limits"]["measured_by"], "one process that holds all ranks");
}

TEST_F(FakeRun, WhoHoldsTheRanksMeansNothingInTheEmulator) {
  RunOptions asked = options("good");
  asked.world = World::processes;
  asked.emulate = true;
  const Result result = run(asked);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.err, "--world") && has(result.err, "--emulate")) << result.err;
}

class FakeProcessFaults : public FakeRun, public testing::WithParamInterface<RunFault> {};

TEST_P(FakeProcessFaults, OneRankStopsTheCellAndNotTheRun) {
  const RunFault& fault = GetParam();
  RunOptions asked = options(std::string("rank1:") + fault.behaviour);
  asked.world = World::processes;
  const auto begin = std::chrono::steady_clock::now();
  const Result result = run(asked);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(result.status, fault.status) << result.err;
  EXPECT_TRUE(has(result.err, fault.words)) << result.err;
  const PublishedRun published = read_results(result.folder);
  ASSERT_EQ(published.rows.size(), 3u);
  EXPECT_TRUE(published.rows[0].timed());
  EXPECT_FALSE(published.rows[1].timed());
  EXPECT_EQ(published.rows[1]->flags, fault.flags);
  EXPECT_TRUE(published.rows[2].timed()) << "fresh workers take over";
}

INSTANTIATE_TEST_SUITE_P(All, FakeProcessFaults,
                         testing::Values(RunFault{"exit", 2, "(rank 1), running ", "lost failed"},
                                         RunFault{"crash", 2, "illegal address in rank 1", "lost failed"},
                                         RunFault{"hang", 2, "(rank 1), running ", "lost failed"},
                                         RunFault{"nonsense", 2, "nonsense", "lost failed"},
                                         RunFault{"wrong_data", 2, "element 7 of rank 1", ""},
                                         RunFault{"other_bits", 2, "ranks differ", ""},
                                         RunFault{"cannot_run", 5, "do not fit", "failed"},
                                         RunFault{"fewer_samples", 5, "rank 1 gave 8", "failed"}),
                         [](const auto& info) { return std::string(info.param.behaviour); });

class FakeLosses : public FakeRun, public testing::WithParamInterface<const char*> {};

TEST_P(FakeLosses, AContenderThatKeepsHangingIsLeftAlone) {
  RunOptions asked = options(GetParam());
  asked.min_bytes = 2048;
  asked.max_bytes = 2048;
  asked.modes = {"pipelined", "isolated"};
  asked.caches = {"warm", "cold"};
  const Result result = run(asked);
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.err, "hung or lost its worker 2 times in a row")) << result.err;
  EXPECT_EQ(read_results(result.folder).rows.size(), 4u);
}
INSTANTIATE_TEST_SUITE_P(All, FakeLosses, testing::Values("exit", "device_hangs"),
                         [](const auto& info) { return std::string(info.param); });

// A machine that cannot run on GPUs runs emulated and says why.
struct NoGpu {
  const char* behaviour;
  const char* words;
};

class FakeNoGpu : public FakeRun, public testing::WithParamInterface<NoGpu> {};

TEST_P(FakeNoGpu, RunsEmulatedAndSaysWhy) {
  RunOptions asked = options(GetParam().behaviour);
  asked.toolkits = {};
  const Result result = run(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.err, "emulated") && has(result.err, GetParam().words)) << result.err;
  const PublishedRun published = read_results(result.folder);
  EXPECT_EQ(published.rows.size(), 3u);
  for (const Row& row : published.rows) EXPECT_EQ(row->evidence, Evidence::emulated);
  const auto benchmark = nlohmann::json::parse(test::read_file(result.folder / "benchmark.json"));
  EXPECT_TRUE(benchmark["benchmarks"].empty()) << "an emulated cell has no time";
  EXPECT_TRUE(benchmark["context"].contains("emulated_cells"));
}

INSTANTIATE_TEST_SUITE_P(All, FakeNoGpu,
                         testing::Values(NoGpu{"no_driver", "libcuda.so.1"}, NoGpu{"old_driver", "CUDA 12.2"},
                                         NoGpu{"no_gpu", "0 GPUs"}, NoGpu{"one_gpu", "1 GPU"},
                                         NoGpu{"no_p2p", "P2P"}, NoGpu{"dies_at_once", "status 5"}),
                         [](const auto& info) { return std::string(info.param.behaviour); });

TEST_F(FakeRun, MoreGpusThanThereAreIsAUsageError) {
  RunOptions asked = options("good");
  asked.gpus = 9;
  const Result result = run(asked);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.err, "-g 9") && has(result.err, "2 GPUs can be used")) << result.err;
  EXPECT_TRUE(result.folder.empty());
}

TEST_F(FakeRun, ABundleForOtherHardwareIsASentence) {
  RunOptions asked = options("good");
  fs::remove_all(asked.bundles / "13.0-nvrtc");
  test::make_bundle(asked.bundles, "13.0-nvrtc", "sm_120");
  const Result result = run(asked);
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(has(result.err, "sm_120") && has(result.err, "this GPU is sm_90")) << result.err;
  EXPECT_TRUE(result.folder.empty());
}

TEST_F(FakeRun, ACorruptBundleStopsOnlyRunsThatNeedIt) {
  RunOptions asked = options("good");
  test::write_file(asked.bundles / "12.8-nvrtc" / "made_up.sm_90.cubin", "other code");
  const Result other = run(asked);
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_TRUE(has(other.err, "left out")) << other.err;
  fs::remove_all(results_path());
  asked.toolkits = {"12.8"};
  const Result result = run(asked);
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(has(result.err, "12.8-nvrtc")) << result.err;
}

TEST_F(FakeRun, ABundleThatTheDriverRefusesIsASentence) {
  const Result result = run(options("unloadable"));
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(has(result.err, "the driver refuses it")) << result.err;
}

TEST_F(FakeRun, ALibraryThatIsNoNcclIsASentence) {
  RunOptions asked = options("no_nccl");
  asked.contenders = {};
  asked.nccl_paths = {nccl_path().string()};
  const Result result = run(asked);
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(has(result.err, "it is no ELF file")) << result.err;
}

TEST_F(FakeRun, WithoutNcclTheRestRuns) {
  RunOptions asked = options("no_nccl");
  asked.contenders = {};
  const Result result = run(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.err, "no NCCL takes part")) << result.err;
}

class FakeNccl : public FakeRun {
 protected:
  // A run of NCCL's contenders, and what its rows say has run, by contender.
  struct NcclRows {
    Result result;
    std::map<std::string, std::set<std::string>> ran;
  };
  FakeNccl() {
    for (const CatalogRow& row : catalog()) {
      for (const NcclVariable& variable : row.nccl_variables) ::unsetenv(std::string(variable.name).c_str());
    }
  }
  [[nodiscard]] NcclRows run_nccl(RunOptions asked) const {
    asked.nccl_paths = {nccl_path().string()};
    NcclRows rows{.result = run(asked), .ran = {}};
    if (rows.result.folder.empty()) throw std::runtime_error(rows.result.err);
    for (const Row& row : read_results(rows.result.folder).rows) rows.ran[row->contender].insert(row->ran);
    return rows;
  }
  [[nodiscard]] static std::vector<std::string> contenders(
      const std::function<bool(const CatalogRow&)>& wanted) {
    std::vector<std::string> names;
    for (const CatalogRow& row : catalog()) {
      if (row.source == Source::nccl && wanted(row)) names.emplace_back(row.contender);
    }
    return names;
  }
};

TEST_F(FakeNccl, AConfigurationIsOneProcessWithSettingsOfItsOwn) {
  RunOptions asked = options("good");
  asked.contenders = contenders([](const CatalogRow&) { return true; });
  ASSERT_GE(asked.contenders.size(), 3u);
  const NcclRows rows = run_nccl(asked);
  EXPECT_EQ(rows.result.status, 0) << rows.result.err;
  std::set<std::string> processes;
  for (const std::string& contender : asked.contenders) {
    ASSERT_EQ(rows.ran.at(contender).size(), 1u) << contender << " changed its process";
    const std::string ran = *rows.ran.at(contender).begin();
    std::string expected;
    for (const NcclVariable& variable : find_contender(contender)->nccl_variables)
      expected += std::string(variable.name) + "=" + std::string(variable.value) + " ";
    EXPECT_TRUE(ran.starts_with(expected + "in ")) << contender << ": " << ran;
    EXPECT_TRUE(processes.insert(ran.substr(ran.find("in "))).second) << contender << " shares a process";
  }
}

TEST_F(FakeNccl, ItsWorkerStartsWithItsFirstCell) {
  RunOptions asked = options("talks");
  const auto plain = [](const CatalogRow& row) { return row.nccl_variables.empty() && !needs_windows(row); };
  asked.contenders = contenders(plain);
  const NcclRows rows = run_nccl(asked);
  EXPECT_EQ(rows.result.status, 0) << rows.result.err;
  EXPECT_TRUE(fs::exists(rows.result.folder / "worker-nccl-1.log")) << "no log is no evidence";
  for (const std::string& contender : contenders([&](const CatalogRow& row) { return !plain(row); })) {
    EXPECT_FALSE(fs::exists(rows.result.folder / ("worker-nccl-1-" + contender + ".log"))) << contender;
  }
  fs::remove_all(results_path());
  asked.contenders = contenders([&](const CatalogRow& row) { return !plain(row); });
  const NcclRows others = run_nccl(asked);
  for (const std::string& contender : asked.contenders) {
    EXPECT_TRUE(fs::exists(others.result.folder / ("worker-nccl-1-" + contender + ".log"))) << contender;
  }
}

TEST_F(FakeNccl, AUsersOwnValueWins) {
  RunOptions asked = options("good");
  asked.contenders = contenders([](const CatalogRow& row) { return row.nccl_variables.size() >= 2; });
  ASSERT_FALSE(asked.contenders.empty());
  const CatalogRow& row = *find_contender(asked.contenders.front());
  const std::string in_environment(row.nccl_variables[0].name);
  const std::string in_arm(row.nccl_variables[1].name);
  ::setenv(in_environment.c_str(), "MINE", 1);
  asked.worker_variables = {{in_arm, "OURS"}};
  const NcclRows rows = run_nccl(asked);
  ::unsetenv(in_environment.c_str());
  EXPECT_EQ(rows.result.status, 0) << rows.result.err;
  const std::string ran = *rows.ran.at(asked.contenders.front()).begin();
  EXPECT_TRUE(has(ran, in_environment + "=MINE ") && has(ran, in_arm + "=OURS ")) << ran;
}

TEST_F(FakeNccl, AProcessARankHasTheSameSettings) {
  RunOptions asked = options("talks");
  asked.world = World::processes;
  asked.contenders = contenders([](const CatalogRow& row) { return !row.nccl_variables.empty(); });
  const NcclRows rows = run_nccl(asked);
  EXPECT_EQ(rows.result.status, 0) << rows.result.err;
  for (const std::string& contender : asked.contenders) {
    const NcclVariable& variable = find_contender(contender)->nccl_variables.front();
    EXPECT_TRUE(has(*rows.ran.at(contender).begin(), std::string(variable.name) + "="));
    for (const char* rank : {"-rank0.log", "-rank1.log"})
      EXPECT_TRUE(fs::exists(rows.result.folder / ("worker-nccl-1-" + contender + rank)));
  }
}

TEST_F(FakeNccl, OneThatIsTooOldIsLeftOutOrRefusedByName) {
  const std::vector<std::string> windows = contenders(needs_windows);
  ASSERT_FALSE(windows.empty());
  RunOptions asked = options("old_nccl");
  asked.contenders = {};
  const NcclRows all = run_nccl(asked);
  EXPECT_EQ(all.result.status, 0) << all.result.err;
  for (const std::string& contender : windows) {
    EXPECT_FALSE(all.ran.contains(contender));
    EXPECT_TRUE(has(all.result.err, contender + " is left out: this NCCL is too old for windows"))
        << all.result.err;
  }
  fs::remove_all(results_path());
  asked.contenders = windows;
  const NcclRows named = run_nccl(asked);
  EXPECT_EQ(named.result.status, 5) << named.result.err;
  EXPECT_TRUE(has(named.result.err, " did not run: this NCCL is too old for windows")) << named.result.err;
  EXPECT_EQ(read_results(named.result.folder).rows.size(), 3 * windows.size());
  for (const std::string& contender : windows)
    EXPECT_FALSE(fs::exists(named.result.folder / ("worker-nccl-1-" + contender + ".log")));
}

TEST_F(FakeNccl, ALostWorkerOfOneConfigurationIsNotAnothers) {
  RunOptions asked = options("crash");
  asked.contenders = contenders([](const CatalogRow&) { return true; });
  const NcclRows rows = run_nccl(asked);
  EXPECT_EQ(rows.result.status, 2) << rows.result.err;
  // Two good cells of each, the second in a new process; the rows that were lost say nothing.
  for (const std::string& contender : asked.contenders) {
    std::set<std::string> ran = rows.ran.at(contender);
    ran.erase("");
    EXPECT_EQ(ran.size(), 2u) << contender;
    EXPECT_TRUE(has(rows.result.err, contender)) << rows.result.err;
  }
}

TEST_F(FakeRun, GoogleBenchmarksFlagsWork) {
  RunOptions asked = options("good");
  asked.benchmark_flags = {"--benchmark_filter=/(1024|4096)/.*warm$", "--benchmark_format=csv",
                           "--benchmark_out=" + (scratch_.path() / "out.json").string()};
  const Result result = run(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(read_results(result.folder).rows.size(), 2u);
  EXPECT_TRUE(has(result.out, "name,iterations,real_time")) << result.out;
  EXPECT_FALSE(has(result.out, "manual_time")) << result.out;
  const auto file = nlohmann::json::parse(test::read_file(scratch_.path() / "out.json"));
  EXPECT_EQ(file["benchmarks"].size(), 2u);

  fs::remove_all(results_path());
  asked.benchmark_flags = {"--benchmark_list_tests"};
  const Result list = run(asked);
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_EQ(std::ranges::count(list.out, '\n'), 3);
  EXPECT_TRUE(list.folder.empty());

  for (const char* refused :
       {"--benchmark_min_time=1", "--benchmark_repetitions=3", "--benchmark_min_warmup_time=1"}) {
    asked.benchmark_flags = {refused};
    const Result no = run(asked);
    EXPECT_EQ(no.status, 1) << refused;
    EXPECT_TRUE(has(no.err, "-n") && has(no.err, "--launches")) << no.err;
  }
  asked.benchmark_flags = {"--benchmark_nonsense=1"};
  EXPECT_EQ(run(asked).status, 1);
  asked.benchmark_flags = {"--benchmark_filter=nothing_like_it"};
  EXPECT_EQ(run(asked).status, 1);
}

TEST_F(FakeRun, CtrlCKeepsTheCompleteRows) {
  RunOptions asked = options("hang");
  asked.deadline_s = 60;
  // The first cell is complete once its row is on disk.
  const auto row_there = [&] {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(results_path(), error)) {
      const std::string rows = test::read_file(entry.path() / "rows.csv");
      if (std::ranges::count(rows, '\n') >= 2) return true;
    }
    return false;
  };
  EXPECT_EQ(interrupted([&] { return run(asked).status; }, row_there), 5);
  const fs::path folder = fs::directory_iterator(results_path())->path();
  EXPECT_TRUE(folder.filename().string().ends_with("-interrupted"));
  const PublishedRun published = read_results(folder);
  EXPECT_TRUE(published.interrupted);
  EXPECT_EQ(published.rows.size(), 1u);
}

TEST_F(FakeRun, LaunchesBeforeAnInterruptAreKept) {
  RunOptions asked = options("good");
  asked.launches = 1'000;
  // Once a later launch has rows; by then launches follow each other fast.
  const auto rows_there = [&] {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(results_path(), error)) {
      const std::string rows = test::read_file(entry.path() / "rows.csv");
      if (std::ranges::count(rows, '\n') >= 8) return true;
    }
    return false;
  };
  EXPECT_EQ(interrupted([&] { return run(asked).status; }, rows_there), 5);
  const PublishedRun published = read_results(fs::directory_iterator(results_path())->path());
  EXPECT_TRUE(published.interrupted);
  EXPECT_GE(published.rows.size(), 7u);
}

TEST_F(FakeRun, ListShowsGpusAndNccl) {
  std::ostringstream out;
  std::ostringstream err;
  const Interrupt interrupt;
  const RunOptions asked = options("good");
  ListOptions list;
  list.json = true;
  list.bundles = asked.bundles;
  list.nccl_paths = {nccl_path().string()};
  list.worker_program = asked.worker_program;
  EXPECT_EQ(list_verb(list, {.out = out, .err = err}, interrupt), 0) << err.str();
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["gpus"].size(), 2u);
  EXPECT_EQ(json["bundles"].size(), 2u);
  EXPECT_EQ(json["nccl"][0]["version"], "2.28.9+cuda13.0");
  for (const auto& contender : json["contenders"]) {
    const CatalogRow& row = *find_contender(contender["contender"].get<std::string>());
    EXPECT_FALSE(contender.contains("cannot_run")) << contender.dump();
    for (const NcclVariable& variable : row.nccl_variables)
      EXPECT_EQ(contender["variables"][std::string(variable.name)], std::string(variable.value));
  }
}

TEST_F(FakeRun, ListSaysWhyAContenderCannotRun) {
  const auto listed = [&](const std::string& behaviour) {
    std::ostringstream out;
    std::ostringstream err;
    const Interrupt interrupt;
    const RunOptions asked = options(behaviour);
    ListOptions list;
    list.json = true;
    list.bundles = asked.bundles;
    list.nccl_paths = {nccl_path().string()};
    list.worker_program = asked.worker_program;
    list_verb(list, {.out = out, .err = err}, interrupt);
    return nlohmann::json::parse(out.str())["contenders"];
  };
  const auto expect = [&](const std::string& behaviour, const std::string& why,
                          const std::function<bool(const CatalogRow&)>& who) {
    for (const auto& contender : listed(behaviour)) {
      const CatalogRow& row = *find_contender(contender["contender"].get<std::string>());
      const bool cannot = who(row);
      EXPECT_EQ(contender.contains("cannot_run"), cannot) << behaviour << ": " << contender.dump();
      if (!cannot) continue;
      EXPECT_TRUE(has(contender["cannot_run"], why)) << contender.dump();
    }
  };
  const auto nccl = [](const CatalogRow& row) { return row.source == Source::nccl; };
  // Bundles are listed by themselves, so a kernel is never said to be unable.
  const auto all = [](const CatalogRow& row) { return !runs_kernels(row); };
  expect("old_nccl", "this NCCL is too old for windows", needs_windows);
  expect("no_nccl", "no NCCL was found", nccl);
  expect("no_driver", "libcuda.so.1 is not there", all);
  expect("one_gpu", "there is 1 GPU", all);
  expect("no_p2p", "no P2P", all);
}

}  // namespace
}  // namespace arb
