// Whole comparisons through real worker processes that pretend to have GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catalog.h"
#include "made_bundle.h"
#include "results_folder.h"
#include "scratch.h"
#include "verbs.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

struct Result {
  int status = -1;
  std::string out;
  std::string err;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class FakeCompare : public testing::Test {
 protected:
  FakeCompare() {
    for (const char* name : {"12.8-nvrtc", "13.0-nvrtc", "support"})
      test::make_bundle(scratch_.path() / "bundles", name);
    test::make_bundle(scratch_.path() / "planted", "13.0-nvrtc");
    test::write_file(nccl_path(), "");
  }

  [[nodiscard]] fs::path nccl_path() const { return scratch_.path() / "libnccl.so.2"; }

  [[nodiscard]] fs::path worker(const std::string& behaviour) const {
    const fs::path program = scratch_.path() / ("fake-" + behaviour);
    test::write_file(program,
                     std::string("#!/bin/sh\nexec '") + ARB_FAKE_WORKER + "' " + behaviour + " \"$@\"\n");
    fs::permissions(program, fs::perms::owner_all);
    return program;
  }

  [[nodiscard]] CompareOptions options(const std::string& behaviour = "good") const {
    CompareOptions options;
    options.a = {"toolkit=12.8"};
    options.b = {"toolkit=13.0"};
    options.blocks = 6;
    options.run.min_bytes = 1024;
    options.run.max_bytes = 4096;
    options.run.samples = 9;
    options.run.nccl_paths = {nccl_path().string()};
    options.run.bundles = scratch_.path() / "bundles";
    options.run.results = scratch_.path() / "results";
    options.run.deadline_s = 1;
    options.run.cell_allowance_s = 0;
    options.run.command = "arbench compare";
    options.run.worker_program = worker(behaviour);
    return options;
  }

  static Result compare(const CompareOptions& options) {
    std::ostringstream out;
    std::ostringstream err;
    const Interrupt interrupt;
    const int status = compare_verb(options, {.out = out, .err = err}, interrupt);
    return {status, out.str(), err.str()};
  }

  test::Scratch scratch_;
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
