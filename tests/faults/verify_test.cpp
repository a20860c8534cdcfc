// Verifications on a fake worker, which goes wrong in the fourth case of each contender: what the user sees,
// what is left on disk, how the program exits.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "catalog.h"
#include "command.h"
#include "made_bundle.h"
#include "scratch.h"
#include "verbs.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

struct Result {
  int status = -1;
  std::string out;
  std::string err;
  fs::path folder;                 // the one results folder, or empty
  std::vector<std::string> lines;  // of verify.csv, without its header
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class FakeVerify : public testing::Test {
 protected:
  FakeVerify() {
    test::make_bundle(scratch_.path() / "bundles", "13.0-nvrtc");
    test::make_bundle(scratch_.path() / "bundles", "support");
    test::write_file(scratch_.path() / "libnccl.so.2", "");
  }

  [[nodiscard]] fs::path results_path() const { return scratch_.path() / "results"; }
  static std::string kernel() {
    return std::string(std::ranges::find(catalog(), Source::kernel, &CatalogRow::source)->contender);
  }
  static std::string nccl() {
    return std::string(std::ranges::find(catalog(), Source::nccl, &CatalogRow::source)->contender);
  }

  // One contender on the fake machine's two GPUs.
  [[nodiscard]] VerifyOptions options(const std::string& behaviour) const {
    const fs::path program = scratch_.path() / ("fake-" + behaviour);
    test::write_file(program,
                     std::string("#!/bin/sh\nexec '") + ARB_FAKE_WORKER + "' " + behaviour + " \"$@\"\n");
    fs::permissions(program, fs::perms::owner_all);
    VerifyOptions options;
    options.run.contenders = {kernel()};
    options.run.ranks = 2;
    options.run.bundles = scratch_.path() / "bundles";
    options.run.results = results_path();
    options.run.deadline_s = 1;
    options.run.cell_allowance_s = 0;
    options.run.command = "arbench verify";
    options.run.worker_program = program;
    return options;
  }

  [[nodiscard]] Result verify(const VerifyOptions& options) const {
    std::ostringstream out;
    std::ostringstream err;
    const Interrupt interrupt;
    Result result;
    result.status = verify_verb(options, {.out = out, .err = err}, interrupt);
    result.out = out.str();
    result.err = err.str();
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(results_path(), error)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with('.')) << "a temporary folder stayed behind";
      result.folder = entry.path();
      result.lines = test::lines_of(test::read_file(result.folder / "verify.csv"));
      result.lines.erase(result.lines.begin());
    }
    return result;
  }

  test::Scratch scratch_;
};

TEST_F(FakeVerify, AGoodOneVisitsRealAndVirtualRanks) {
  VerifyOptions asked = options("good");
  asked.run.ranks.reset();
  asked.run.contenders = {kernel(), nccl()};
  asked.run.nccl_paths = {(scratch_.path() / "libnccl.so.2").string()};
  const Result result = verify(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.folder.filename().string(), "-2xPretended_GPU-verify"));
  // Our kernel on 2, 8, 3 and 5 ranks; NCCL takes no part where ranks share a GPU.
  ASSERT_EQ(result.lines.size(), 5u) << result.out;
  EXPECT_TRUE(has(result.lines[0], "measured," + kernel() + ",13.0,nvrtc,,threads,bf16 fp16 fp32,2,2,"));
  EXPECT_TRUE(has(result.lines[1], "measured," + nccl() + ",,,2.28.9+cuda13.0,threads,bf16 fp16 fp32,2,2,"));
  for (std::size_t line = 0; line < result.lines.size(); ++line) {
    EXPECT_TRUE(has(result.lines[line], line < 2 ? ",yes,," : ",yes,oversubscribed,")) << result.lines[line];
  }
  for (const char* file : {"environment.json", "manifest.json", "command.txt"})
    EXPECT_TRUE(fs::exists(result.folder / file));
  EXPECT_FALSE(fs::exists(result.folder / "rows.csv"));
  std::istringstream columns(result.lines[0]);
  std::string calls;
  for (int column = 0; column < 11; ++column) std::getline(columns, calls, ',');
  EXPECT_GE(std::stoul(calls), 100'000u);
  EXPECT_TRUE(has(result.out, "right")) << result.out;
}

struct VerifyFault {
  const char* behaviour;
  int status;
  const char* words;
  const char* correct;  // the column
};
class FakeVerifyFaults : public FakeVerify, public testing::WithParamInterface<VerifyFault> {};

TEST_P(FakeVerifyFaults, EndsWithASentenceAndItsStatus) {
  const VerifyFault& fault = GetParam();
  const Result result = verify(options(fault.behaviour));
  EXPECT_EQ(result.status, fault.status) << result.err;
  EXPECT_TRUE(has(result.err, fault.words)) << result.err;
  ASSERT_EQ(result.lines.size(), 1u);
  EXPECT_TRUE(has(result.lines[0], fault.correct)) << result.lines[0];
  EXPECT_TRUE(has(result.err, "results in ")) << result.err;
  if (std::string(fault.correct) == ",no,,") {
    EXPECT_TRUE(has(result.err, "replay it with arbench verify --contender " + kernel() +
                                    " --toolkit 13.0-nvrtc -g 2 --ranks 2 --case 1000003"))
        << result.err;
    EXPECT_TRUE(has(result.out, "WRONG")) << result.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Behaviours, FakeVerifyFaults,
                         testing::Values(VerifyFault{"wrong_data", 2, "element 7 of rank 1 is 3 instead of 2",
                                                     ",no,,"},
                                         VerifyFault{"hang", 2, "rank 0 waits for rank 1", ",no,,"},
                                         VerifyFault{"crash", 2, "illegal address in rank 1", ",no,,"},
                                         VerifyFault{"nonsense", 2, "is WRONG", ",no,,"},
                                         VerifyFault{"cannot_run", 5, "its blocks do not fit", ",,,"},
                                         VerifyFault{"blind", 2, "did not see a wrong input", ",yes,,"}),
                         [](const auto& fault) { return fault.param.behaviour; });

TEST_F(FakeVerify, OneCaseIsOneCase) {
  VerifyOptions asked = options("wrong_data");
  asked.case_number = 3;
  Result result = verify(asked);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_TRUE(has(result.lines.at(0), ",2,2,1,")) << result.lines[0];
  fs::remove_all(result.folder);
  asked.case_number = 4;
  result = verify(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.lines.at(0), ",2,2,1,")) << result.lines[0];
}

TEST_F(FakeVerify, ForSetsTheTime) {
  VerifyOptions asked = options("good");
  asked.for_s = 1;
  const auto begin = std::chrono::steady_clock::now();
  const Result result = verify(asked);
  const std::chrono::duration<double> elapsed_s = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_GT(elapsed_s.count(), 0.9);
  EXPECT_LT(elapsed_s.count(), 5);
}

TEST_F(FakeVerify, OneGpuHoldsVirtualRanks) {
  VerifyOptions asked = options("one_gpu");
  asked.run.ranks.reset();
  const Result result = verify(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  ASSERT_EQ(result.lines.size(), 3u) << result.out;
  EXPECT_TRUE(has(result.lines[0], ",8,1,")) << result.lines[0];
  for (const std::string& line : result.lines) EXPECT_TRUE(has(line, ",yes,oversubscribed,")) << line;
}

TEST_F(FakeVerify, WithoutGpusItIsEmulated) {
  VerifyOptions asked = options("no_driver");
  asked.run.ranks = 3;
  asked.for_s = 2;
  const Result result = verify(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.err, "emulated")) << result.err;
  ASSERT_EQ(result.lines.size(), 2u);
  EXPECT_TRUE(has(result.lines[1], ",yes,gate,")) << result.lines[1];
  EXPECT_GT(test::lines_of(test::read_file(result.folder / "planted.csv")).size(), 5u);
  EXPECT_TRUE(result.lines[0].starts_with("emulated," + kernel() + ",,g++,,emulated,")) << result.lines[0];
}

TEST_F(FakeVerify, WhatDoesNotExistIsAUsageError) {
  VerifyOptions asked = options("good");
  asked.run.ranks = 9;
  EXPECT_EQ(verify(asked).status, 1);
  asked = options("good");
  asked.run.contenders = {"no_such_thing"};
  EXPECT_EQ(verify(asked).status, 1);
  asked = options("good");
  asked.run.contenders = {nccl()};
  asked.run.nccl_paths = {(scratch_.path() / "libnccl.so.2").string()};
  asked.run.ranks = 8;
  const Result result = verify(asked);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(has(result.err, "no contender that was asked for")) << result.err;
  EXPECT_TRUE(result.folder.empty());
}

TEST_F(FakeVerify, CtrlCKeepsWhatWasFound) {
  const VerifyOptions asked = options("hang");
  const pid_t child = ::fork();
  if (child == 0) {
    VerifyOptions patient = asked;
    patient.run.deadline_s = 60;
    ::_exit(verify(patient).status);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 5);
  const fs::path folder = fs::directory_iterator(results_path())->path();
  EXPECT_TRUE(folder.filename().string().ends_with("-interrupted")) << folder;
  EXPECT_EQ(test::lines_of(test::read_file(folder / "verify.csv")).size(), 2u);
}

TEST(VerifyCommandLine, RefusesATimeThatIsNone) {
  for (const char* text : {"2x", "0", "m", "-1s", ""}) {
    const test::Said said = test::run_command({ARB_PROGRAM, "verify", "--emulate", "--for", text});
    EXPECT_EQ(said.status, 1) << text << ": " << said.err;
    EXPECT_EQ(said.out, "");
  }
}

}  // namespace
}  // namespace arb
