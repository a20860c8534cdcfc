// Verifications on a fake worker, which goes wrong in the fourth case of each contender: what the user sees,
// what is left on disk, how the program exits.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "command.h"
#include "fake_box.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

class FakeVerify : public FakeBox {
 protected:
  struct Verified : Result {
    std::vector<std::string> lines;  // of verify.csv, without its header
  };

  // One contender on the fake machine's two GPUs.
  [[nodiscard]] VerifyOptions options(const std::string& behaviour) const {
    VerifyOptions options;
    options.run = box_options(behaviour);
    options.run.contenders = {first_kernel()};
    options.run.toolkits = {"13.0"};
    options.run.ranks = 2;
    options.run.command = "arbench verify";
    return options;
  }

  [[nodiscard]] Verified verify(const VerifyOptions& options) const {
    Verified result{say([&](const Terminal& terminal, const Interrupt& interrupt) {
                      return verify_verb(options, terminal, interrupt);
                    }),
                    {}};
    if (result.folder.empty()) return result;
    result.lines = test::lines_of(test::read_file(result.folder / "verify.csv"));
    result.lines.erase(result.lines.begin());
    return result;
  }
};

TEST_F(FakeVerify, AGoodOneVisitsRealAndVirtualRanks) {
  VerifyOptions asked = options("good");
  asked.run.ranks.reset();
  asked.run.contenders = {first_kernel(), first_nccl()};
  asked.run.nccl_paths = {nccl_path().string()};
  const Verified result = verify(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.folder.filename().string(), "-2xPretended_GPU-verify"));
  // Our kernel on 2, 8, 3, 5 and 4 ranks; NCCL takes no part where ranks share a GPU.
  ASSERT_EQ(result.lines.size(), 6u) << result.out;
  EXPECT_TRUE(
      has(result.lines[0], "measured," + first_kernel() + ",13.0,nvrtc,,threads,bf16 fp16 fp32,2,2,"));
  EXPECT_TRUE(
      has(result.lines[1], "measured," + first_nccl() + ",,,2.28.9+cuda13.0,threads,bf16 fp16 fp32,2,2,"));
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
  const Verified result = verify(options(fault.behaviour));
  EXPECT_EQ(result.status, fault.status) << result.err;
  EXPECT_TRUE(has(result.err, fault.words)) << result.err;
  ASSERT_EQ(result.lines.size(), 1u);
  EXPECT_TRUE(has(result.lines[0], fault.correct)) << result.lines[0];
  EXPECT_TRUE(has(result.err, "results in ")) << result.err;
  if (std::string(fault.correct) == ",no,,") {
    EXPECT_TRUE(has(result.err, "replay it with arbench verify --contender " + first_kernel() +
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
  Verified result = verify(asked);
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
  const Verified result = verify(asked);
  const std::chrono::duration<double> elapsed_s = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_GT(elapsed_s.count(), 0.9);
  EXPECT_LT(elapsed_s.count(), 5);
}

TEST_F(FakeVerify, OneGpuHoldsVirtualRanks) {
  VerifyOptions asked = options("one_gpu");
  asked.run.ranks.reset();
  const Verified result = verify(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  ASSERT_EQ(result.lines.size(), 5u) << result.out;
  EXPECT_TRUE(has(result.lines[0], ",8,1,")) << result.lines[0];
  for (const std::string& line : result.lines) EXPECT_TRUE(has(line, ",yes,oversubscribed,")) << line;
}

TEST_F(FakeVerify, EveryNumberOfRanksThatHasGpusOfItsOwnIsVerified) {
  VerifyOptions asked = options("seven_gpus");
  asked.run.ranks.reset();
  asked.for_s = 2;
  const Verified result = verify(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  const std::vector<std::string> teams = {",7,7,", ",8,7,", ",3,3,", ",5,5,", ",4,4,", ",2,2,", ",6,6,"};
  ASSERT_EQ(result.lines.size(), teams.size()) << result.out;
  for (std::size_t i = 0; i < teams.size(); ++i)
    EXPECT_TRUE(has(result.lines[i], teams[i])) << result.lines[i];
}

TEST_F(FakeVerify, WithoutGpusItIsEmulated) {
  VerifyOptions asked = options("no_driver");
  asked.run.ranks = 3;
  asked.for_s = 2;
  const Verified result = verify(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.err, "emulated")) << result.err;
  ASSERT_EQ(result.lines.size(), 2u);
  EXPECT_TRUE(has(result.lines[1], ",yes,gate,")) << result.lines[1];
  EXPECT_GT(test::lines_of(test::read_file(result.folder / "planted.csv")).size(), 5u);
  EXPECT_TRUE(result.lines[0].starts_with("emulated," + first_kernel() + ",,g++,,emulated,"))
      << result.lines[0];
}

TEST_F(FakeVerify, WhatDoesNotExistIsAUsageError) {
  VerifyOptions asked = options("good");
  asked.run.ranks = 9;
  EXPECT_EQ(verify(asked).status, 1);
  asked = options("good");
  asked.run.contenders = {"no_such_thing"};
  EXPECT_EQ(verify(asked).status, 1);
  asked = options("good");
  asked.run.contenders = {first_nccl()};
  asked.run.nccl_paths = {nccl_path().string()};
  asked.run.ranks = 8;
  const Verified result = verify(asked);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(has(result.err, "no contender that was asked for")) << result.err;
  EXPECT_TRUE(result.folder.empty());
}

TEST_F(FakeVerify, CtrlCKeepsWhatWasFound) {
  VerifyOptions asked = options("hang");
  asked.run.deadline_s = 60;
  EXPECT_EQ(interrupted([&] { return verify(asked).status; }, [&] { return worker_hangs(); }), 5);
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
