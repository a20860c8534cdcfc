// Whole comparisons through real worker processes that pretend to have GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fake_box.h"
#include "results_folder.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

class FakeCompare : public FakeBox {
 protected:
  FakeCompare() { test::make_bundle(scratch_.path() / "planted", "13.0-nvrtc"); }

  [[nodiscard]] CompareOptions options(const std::string& behaviour = "good") const {
    CompareOptions options;
    options.run = box_options(behaviour);
    options.a = {"toolkit=12.8"};
    options.b = {"toolkit=13.0"};
    options.blocks = 6;
    options.run.min_bytes = 1024;
    options.run.max_bytes = 4096;
    options.run.samples = 9;
    options.run.nccl_paths = {nccl_path().string()};
    options.run.command = "arbench compare";
    return options;
  }

  [[nodiscard]] Result compare(const CompareOptions& options) const {
    return say([&](const Terminal& terminal, const Interrupt& interrupt) {
      return compare_verb(options, terminal, interrupt);
    });
  }
};

TEST_F(FakeCompare, TwoToolkitsThroughWorkers) {
  const Result result = compare(options());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.out, "A 12.8")) << result.out;
  EXPECT_TRUE(has(result.out, "nccl")) << result.out;
  EXPECT_TRUE(has(result.out, " 0 FASTER, 0 SLOWER")) << result.out;
}

TEST_F(FakeCompare, AnotherBuildsWorkersThatAreSlower) {
  CompareOptions asked = options();
  asked.a = {};
  asked.b = {"arbench=" + worker("slow").string()};
  const Result result = compare(asked);
  EXPECT_EQ(result.status, 3) << result.err << result.out;
  EXPECT_TRUE(has(result.out, "+3.0%")) << result.out;
}

TEST_F(FakeCompare, AKernelAgainstNcclThatLoadsNoBundle) {
  CompareOptions asked = options();
  asked.a = {"contender=" + first_kernel()};
  asked.b = {"contender=" + first_nccl()};
  const Result result = compare(asked);
  EXPECT_TRUE(has(result.out, first_kernel() + ":" + first_nccl())) << result.err << result.out;
  EXPECT_TRUE(result.status == 0 || result.status == 3) << result.err;
}

// Each launch's workers say for themselves where they run.
TEST_F(FakeCompare, WorkersOnAnotherMachineFailTheGates) {
  CompareOptions asked = options();
  asked.a = {};
  asked.b = {"arbench=" + worker("other_machine").string()};
  const Result result = compare(asked);
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_TRUE(has(result.out, "ran on other GPUs (GPU-90000000 and GPU-90000001) than the plan's"))
      << result.out;
  EXPECT_TRUE(has(result.out, "ran on driver 590.10 and the plan on 580.82.07")) << result.out;
  EXPECT_TRUE(has(result.out, "no verdict: ")) << result.out;
}

TEST_F(FakeCompare, ABundleByItsFolder) {
  CompareOptions asked = options();
  asked.a = {"toolkit=13.0"};
  asked.b = {"bundle=" + (scratch_.path() / "planted" / "13.0-nvrtc").string()};
  const Result result = compare(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  asked.b = {"bundle=/nowhere/13.0-nvrtc"};
  const Result refused = compare(asked);
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(has(refused.err, "there is no such folder")) << refused.err;
}

TEST_F(FakeCompare, WorkersThatFailEndItWithASentence) {
  const Result wrong = compare(options("wrong_data"));
  EXPECT_EQ(wrong.status, 2) << wrong.err;
  EXPECT_TRUE(has(wrong.err, "is WRONG in arm")) << wrong.err;
  const Result lost = compare(options("crash"));
  EXPECT_EQ(lost.status, 2) << lost.err;
  EXPECT_TRUE(has(lost.err, "illegal address in rank 1")) << lost.err;
  const Result none = compare(options("no_gpu"));
  EXPECT_EQ(none.status, 5) << none.err;
  EXPECT_TRUE(has(none.err, "a comparison needs 2 GPUs")) << none.err;
  EXPECT_EQ(std::ranges::count(none.err, '\n'), 1) << none.err;
  const Result no_nccl = compare(options("no_nccl"));
  EXPECT_EQ(no_nccl.status, 5) << no_nccl.err;
  EXPECT_TRUE(has(no_nccl.err, "it is no ELF file")) << no_nccl.err;
}

}  // namespace
}  // namespace arb
