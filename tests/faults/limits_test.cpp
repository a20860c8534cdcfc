// Surveys of a machine on a fake worker: what the user sees, what is left on disk, how the program exits.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "command.h"
#include "fake_box.h"
#include "survey.h"

namespace arb {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class FakeLimits : public FakeBox {
 protected:
  // The machine's limits need no bundle of contenders.
  FakeLimits() {
    for (const char* name : {"12.8-nvrtc", "13.0-nvrtc"}) fs::remove_all(scratch_.path() / "bundles" / name);
  }

  [[nodiscard]] RunOptions options(const std::string& behaviour) const {
    RunOptions options = box_options(behaviour);
    options.command = "arbench limits";
    return options;
  }
  [[nodiscard]] Result limits(const RunOptions& options) const {
    return say([&](const Terminal& terminal, const Interrupt& interrupt) {
      return limits_verb(options, terminal, interrupt);
    });
  }
  static Json json_of(const Result& result) {
    return Json::parse(test::read_file(result.folder / "limits.json"));
  }
};

TEST_F(FakeLimits, AGoodMachineLeavesItsMatrices) {
  const Result result = limits(options("good"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.folder.filename().string(), "-2xPretended_GPU-limits")) << result.folder;
  const Json json = json_of(result);
  EXPECT_EQ(json["evidence"], "measured");
  EXPECT_EQ(json["flags_us"][1][0], 0.6);
  EXPECT_EQ(json["tests_left_out"], 0);
  EXPECT_TRUE(json["warnings"].empty());
  EXPECT_EQ(json["bandwidth"].back()["all_pairs_gbps"], 56);
  const Json environment = Json::parse(test::read_file(result.folder / "environment.json"));
  EXPECT_EQ(environment["limits"]["bandwidth_engine"], "copy_engine") << "the same as in a run";
  EXPECT_TRUE(environment["bundles"].empty()) << "no contender takes part";
  EXPECT_TRUE(has(test::read_file(result.folder / "command.txt"), "status: complete"));
  EXPECT_TRUE(has(result.out, "flag, half a round trip")) << result.out;
  EXPECT_FALSE(has(result.out, "!")) << result.out;
}

TEST_F(FakeLimits, JsonOnStandardOutputIsNothingElse) {
  RunOptions asked = options("staged_loads");
  asked.format = Format::json;
  const Result result = limits(asked);
  EXPECT_EQ(result.status, 0) << "an illness is no failure";
  EXPECT_EQ(result.out, test::read_file(result.folder / "limits.json"));
  EXPECT_EQ(json_of(result)["warnings"][0]["illness"], "staged_loads");
  EXPECT_TRUE(has(result.err, "staged through system memory")) << result.err;
  EXPECT_TRUE(has(test::read_file(result.folder / "command.txt"), "staged through")) << "nothing is lost";
}

class FakeLimitsRefusals : public FakeLimits, public testing::WithParamInterface<const char*> {};

TEST_P(FakeLimitsRefusals, FewerThanTwoGpusIsOneSentence) {
  const Result result = limits(options(GetParam()));
  EXPECT_EQ(result.status, 5);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(test::lines_of(result.err).size(), 1u) << result.err;
  EXPECT_TRUE(has(result.err, "2 GPUs or more that reach each other")) << result.err;
  EXPECT_TRUE(result.folder.empty());
}
INSTANTIATE_TEST_SUITE_P(All, FakeLimitsRefusals, testing::Values("no_gpu", "one_gpu", "no_p2p", "no_driver"),
                         [](const auto& info) { return std::string(info.param); });

class FakeLimitsFaults : public FakeLimits, public testing::WithParamInterface<const char*> {};

TEST_P(FakeLimitsFaults, OneTestThatIsLostCostsItsFigureAndNoOther) {
  const auto begin = std::chrono::steady_clock::now();
  const Result result = limits(options(GetParam()));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_TRUE(has(result.err, "a flag from rank 1 to rank 0")) << result.err;
  const Json json = json_of(result);
  EXPECT_TRUE(json["flags_us"][1][0].is_null());
  EXPECT_EQ(json["flags_us"][0][1], 0.6);
  EXPECT_EQ(json["tests_left_out"], 1);
  EXPECT_TRUE(has(test::read_file(result.folder / "command.txt"), "exit_code: 2"));
}
INSTANTIATE_TEST_SUITE_P(All, FakeLimitsFaults,
                         testing::Values("exit", "crash", "hang", "device_hangs", "nonsense", "deaf",
                                         "orphan"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(FakeLimits, TestsThatAllFailAreNotAllTried) {
  const Result result = limits(options("no_limits"));
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_TRUE(has(result.err, "the device said no")) << result.err;
  EXPECT_TRUE(has(result.err, "are not tried, because 3 in a row failed")) << result.err;
  EXPECT_EQ(json_of(result)["tests_left_out"], survey_plan(2).size() - 4);
}

TEST_F(FakeLimits, CtrlCKeepsWhatWasMeasured) {
  RunOptions asked = options("hang");
  asked.deadline_s = 60;
  EXPECT_EQ(interrupted([&] { return limits(asked).status; }, [&] { return worker_hangs(); }), 5);
  const fs::path folder = fs::directory_iterator(results_path())->path();
  EXPECT_TRUE(folder.filename().string().ends_with("-limits-interrupted")) << folder;
  const Json json = Json::parse(test::read_file(folder / "limits.json"));
  EXPECT_EQ(json["flags_us"][0][1], 0.6);
  EXPECT_TRUE(json["flags_us"][1][0].is_null());
}

TEST_F(FakeLimits, WhatCannotBeAskedForIsAUsageError) {
  RunOptions asked = options("good");
  asked.gpus = 3;
  EXPECT_EQ(limits(asked).status, 1);
  asked = options("good");
  asked.deadline_s = 0;
  EXPECT_EQ(limits(asked).status, 1);
  asked = options("good");
  asked.format = Format::csv;
  EXPECT_EQ(limits(asked).status, 1);
}

}  // namespace
}  // namespace arb
