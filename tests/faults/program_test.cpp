// The real program and a user's mistakes: one sentence on stderr, the right exit status, and nothing on
// stdout. No GPU needed: a run on the emulated machine is asked for where the machine would matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "catalog.h"
#include "command.h"
#include "made_bundle.h"
#include "report_csv.h"
#include "results_folder.h"

namespace arb {
namespace {

namespace fs = std::filesystem;
using test::CommandOptions;
using test::lines_of;
using test::Said;

class Program : public testing::Test {
 protected:
  // `arbench run --emulate --results <scratch>/results ...`
  Said run(const std::vector<std::string>& arguments, const CommandOptions& options = {}) const {
    std::vector<std::string> all = {ARB_PROGRAM, "run", "--results", results_path().string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(all, options);
  }
  Said emulate(std::vector<std::string> arguments, const CommandOptions& options = {}) const {
    arguments.insert(arguments.begin(), "--emulate");
    return run(arguments, options);
  }
  [[nodiscard]] fs::path results_path() const { return scratch_.path() / "results"; }
  [[nodiscard]] std::vector<fs::path> results() const {
    std::vector<fs::path> list;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(results_path(), error)) list.push_back(entry.path());
    return list;
  }

  // One sentence, the status, no data, no folder.
  void expect_refusal(const Said& said, int status, const std::vector<std::string>& words) const {
    EXPECT_EQ(said.status, status) << said.err;
    EXPECT_EQ(said.out, "");
    EXPECT_EQ(lines_of(said.err).size(), 1u) << said.err;
    EXPECT_TRUE(said.err.starts_with("arbench: ")) << said.err;
    for (const std::string& word : words)
      EXPECT_NE(said.err.find(word), std::string::npos) << word << " in: " << said.err;
    EXPECT_TRUE(results().empty());
  }

  test::Scratch scratch_;
};

TEST_F(Program, WithNoVerbShowsHelpAndFails) {
  const Said said = test::run_command({ARB_PROGRAM});
  EXPECT_EQ(said.status, 1);
  EXPECT_NE(said.out.find("run"), std::string::npos);
  EXPECT_EQ(said.out.find("worker"), std::string::npos) << "that verb is hidden";
  EXPECT_EQ(test::run_command({ARB_PROGRAM, "--help"}).status, 0);
  EXPECT_EQ(test::run_command({ARB_PROGRAM, "run", "--help"}).status, 0);
}

TEST_F(Program, UnknownVerbsAndFlagsAreUsageErrors) {
  const Said dance = test::run_command({ARB_PROGRAM, "dance"});
  EXPECT_EQ(dance.status, 1);
  EXPECT_EQ(dance.err.substr(0, dance.err.find(';')), "arbench: no verb 'dance'");
  EXPECT_NE(dance.err.find("there are run, compare, "), std::string::npos) << dance.err;
  expect_refusal(emulate({"--dance"}), 1, {"--dance"});
  expect_refusal(emulate({"-n", "many"}), 1, {"many is no whole number"});
  expect_refusal(emulate({"--format", "xml"}), 1, {"'xml' is none of console, json and csv"});
  expect_refusal(emulate({"--world", "moon"}), 1, {"'moon' is none of threads and processes"});
  expect_refusal(emulate({"-b", "1Q"}), 1, {"1Q", "no size"});
}

TEST_F(Program, AnUnknownContenderBringsTheNearest) {
  std::string name(catalog().front().contender);
  name.pop_back();
  expect_refusal(emulate({"--contender", name}), 1,
                 {"'" + name + "'", std::string(catalog().front().contender)});
}

TEST_F(Program, AnUnknownDtypeIsNamed) {
  expect_refusal(emulate({"-d", "bfloat61"}), 1, {"bfloat61", "bfloat16"});
  expect_refusal(emulate({"-d", "int8"}), 1, {"int8"});
}

TEST_F(Program, AnUnknownToolkitIsNamed) {
  test::make_bundle(scratch_.path() / "bundles", "13.0-nvrtc");
  const std::string bundles = (scratch_.path() / "bundles").string();
  expect_refusal(emulate({"--toolkit", "13.1", "--bundles", bundles}), 1, {"13.1", "13.0-nvrtc"});
  expect_refusal(emulate({"--toolkit", "cuda", "--bundles", bundles}), 1, {"cuda"});
}

TEST_F(Program, SizesThatCannotBeAreRefused) {
  expect_refusal(emulate({"-b", "1025", "-e", "2K"}), 1, {"1025", "multiple of 2"});
  expect_refusal(emulate({"-b", "1026", "-e", "2K", "-d", "all"}), 1, {"1026", "fp32"});
  expect_refusal(emulate({"-b", "2K", "-e", "1K"}), 1, {"-b 2K", "-e 1K"});
  expect_refusal(emulate({"-f", "1"}), 1, {"-f 1"});
  expect_refusal(emulate({"-i", "0"}), 1, {"-i 0"});
  expect_refusal(emulate({"-i", "1K", "-f", "2"}), 1, {"-i", "-f"});
  expect_refusal(emulate({"-n", "0"}), 1, {"-n 0"});
}

TEST_F(Program, ComparisonsRefuseWhatWouldHaveNoEffect) {
  const auto refused = [&](std::vector<std::string> arguments, const std::string& word) {
    arguments.insert(arguments.begin(), {ARB_PROGRAM, "compare"});
    expect_refusal(test::run_command(arguments), 1, {word});
  };
  const std::vector<std::vector<std::string>> ignored = {
      {"--contender", "nosuch"}, {"--blocks", "0"}, {"-d", "nonsense"}, {"--a", "toolkit=12.8"}, {"--strict"},
      {"--resume", "x"},         {"-b", "1K"}};
  for (const std::vector<std::string>& option : ignored) {
    std::vector<std::string> arguments = {"--static", "12.8", "13.0"};
    arguments.insert(arguments.end(), option.begin(), option.end());
    refused(arguments, "--static");
  }
  const std::string folder = (scratch_.path() / "interrupted").string();
  refused({"--resume", folder, "--blocks", "24"}, "leave out --blocks");
  refused({"--resume", folder, "--a", "toolkit=12.8"}, "leave out --a");
  refused({"--resume", folder, "-e", "2M"}, "leave out --maxbytes");
  refused({"--resume", folder, "x", "y"}, "leave out sides");
  // What only chooses the output is taken: the folder is what is wrong here.
  expect_refusal(test::run_command({ARB_PROGRAM, "compare", "--resume", folder, "--json", "--strict",
                                    "--results", results_path().string()}),
                 5, {"no such folder"});
}

TEST_F(Program, OtherListsAreChecked) {
  expect_refusal(emulate({"--place", "beside"}), 1, {"beside", "out and in"});
  expect_refusal(emulate({"--mode", "fast"}), 1, {"fast"});
  expect_refusal(emulate({"--cache", "hot"}), 1, {"hot"});
  expect_refusal(emulate({"--format", "xml"}), 1, {"xml"});
  expect_refusal(emulate({"--launches", "0"}), 1, {"--launches"});
  expect_refusal(emulate({"--ranks", "9"}), 1, {"--ranks 9"});
  expect_refusal(emulate({"-g", "2"}), 1, {"-g", "--emulate"});
}

TEST_F(Program, MissingPathsAreNamed) {
  expect_refusal(emulate({"--bundles", "/nowhere"}), 1, {"/nowhere"});
  expect_refusal(emulate({"--nccl", "/nowhere/libnccl.so.2"}), 1, {"/nowhere/libnccl.so.2"});
}

TEST_F(Program, CorruptBundlesAreNamed) {
  const fs::path bundles = scratch_.path() / "bundles";
  const auto broken = [&](const std::string& word) {
    expect_refusal(emulate({"--bundles", bundles.string()}), 5, {"13.0-nvrtc", word});
    const Said list = test::run_command({ARB_PROGRAM, "list", "--bundles", bundles.string()});
    EXPECT_EQ(list.status, 5);
    EXPECT_NE(list.out.find("contenders"), std::string::npos) << "the rest of the list is there";
  };
  fs::remove(test::make_bundle(bundles, "13.0-nvrtc") / "manifest.json");
  broken("manifest.json");
  test::make_bundle(bundles, "13.0-nvrtc");
  test::write_file(bundles / "13.0-nvrtc" / "manifest.json", "{ half");
  broken("manifest.json");
  test::make_bundle(bundles, "13.0-nvrtc");
  test::write_file(bundles / "13.0-nvrtc" / "made_up.sm_90.cubin", "other code");
  broken("made_up.sm_90.cubin");
}

TEST_F(Program, AnUnwritableResultsFolderIsFoundBeforeAnythingRuns) {
  test::write_file(scratch_.path() / "file", "");
  const Said said = test::run_command(
      {ARB_PROGRAM, "run", "--emulate", "--results", (scratch_.path() / "file" / "results").string()});
  expect_refusal(said, 5, {"cannot write results", "--results"});
}

TEST_F(Program, LaunchBlockingIsRefused) {
  expect_refusal(run({"-e", "1K"}, {.environment = {{"CUDA_LAUNCH_BLOCKING", "1"}}}), 5,
                 {"CUDA_LAUNCH_BLOCKING=1"});
  EXPECT_EQ(emulate({"-e", "1K"}, {.environment = {{"CUDA_LAUNCH_BLOCKING", "1"}}}).status, 0);
}

TEST_F(Program, GoogleBenchmarksCountsAreRefused) {
  expect_refusal(emulate({"--benchmark_min_time=1"}), 1, {"-n", "--launches"});
  expect_refusal(emulate({"--benchmark_repetitions=3"}), 1, {"-n", "--launches"});
  expect_refusal(emulate({"--benchmark_filter=["}), 1, {"regular expression"});
  expect_refusal(emulate({"--format", "json", "--benchmark_format=json"}), 1, {"--format"});
  const Said elsewhere = test::run_command({ARB_PROGRAM, "list", "--benchmark_filter=x"});
  EXPECT_EQ(elsewhere.status, 1);
}

// Where there is a driver the first line does not come.
TEST_F(Program, WithoutADriverItRunsEmulatedAndSaysWhy) {
  const Said list = test::run_command({ARB_PROGRAM, "list", "--json"});
  ASSERT_EQ(list.status, 0) << list.err;
  if (!nlohmann::json::parse(list.out)["driver"].contains("problem"))
    GTEST_SKIP() << "this machine has a CUDA driver";
  const Said said = run({"-e", "2K"});
  EXPECT_EQ(said.status, 0) << said.err;
  EXPECT_NE(said.err.find("this run is emulated"), std::string::npos) << said.err;
  EXPECT_NE(said.out.find("emulated"), std::string::npos);
  EXPECT_EQ(said.out.find("GB/s"), std::string::npos);
  ASSERT_EQ(results().size(), 1u);
  EXPECT_FALSE(read_results(results()[0]).rows.empty());
  const Said two = run({"-g", "2"});
  EXPECT_EQ(two.status, 5);
  EXPECT_NE(two.err.find("-g 2"), std::string::npos) << two.err;
}

TEST_F(Program, DataFormatsLeaveStandardOutputClean) {
  const Said csv = emulate({"-e", "4K", "--format", "csv", "--ranks", "4"});
  EXPECT_EQ(csv.status, 0) << csv.err;
  const std::vector<Row> rows = RowReader::read(csv.out);
  EXPECT_FALSE(rows.empty());
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(test::read_file(results()[0] / "rows.csv"), csv.out);
  const Said json = emulate({"-e", "4K", "--format", "json", "--ranks", "4"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["rows"].size(), rows.size());
  const Said google = emulate({"-e", "4K", "--benchmark_format=json"});
  EXPECT_EQ(google.status, 0) << google.err;
  EXPECT_TRUE(nlohmann::json::parse(google.out)["benchmarks"].empty())
      << "an emulated cell has no time to report";
  const Said list = emulate({"-e", "1K", "--benchmark_list_tests=true"});
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_TRUE(list.out.starts_with(std::string(catalog().front().contender) +
                                   "/g++/bf16/n8/1024/out/pipelined/warm\n"))
      << list.out;
}

TEST_F(Program, RunsWithTheSameSeedGiveTheSameRows) {
  const std::vector<std::string> arguments = {"-e", "4K", "-d", "all", "--format", "csv", "--seed", "7"};
  EXPECT_EQ(emulate(arguments).out, emulate(arguments).out);
}

TEST_F(Program, CtrlCLeavesAnInterruptedFolder) {
  const Said said = emulate({"-b", "16", "-e", "1M", "-i", "16"},
                            {.environment = {}, .interrupt_at_bytes = 4000});  // several rows
  EXPECT_EQ(said.status, 5) << said.err;
  EXPECT_NE(said.err.find("interrupted"), std::string::npos) << said.err;
  ASSERT_EQ(results().size(), 1u);
  const PublishedRun run = read_results(results()[0]);
  EXPECT_TRUE(run.interrupted);
  EXPECT_FALSE(run.rows.empty());
}

TEST_F(Program, AReaderThatGoesAwayCostsNoResults) {
  const Said said = test::run_command({"/bin/sh", "-c",
                                       std::string("'") + ARB_PROGRAM + "' run --emulate -e 64K --results '" +
                                           results_path().string() + "' | head -n 1"});
  EXPECT_EQ(said.status, 0);
  ASSERT_EQ(results().size(), 1u);
  EXPECT_FALSE(read_results(results()[0]).interrupted);
}

}  // namespace
}  // namespace arb
