#include "coordinator/bundles.h"

#include <gtest/gtest.h>

#include "made_bundle.h"

namespace arb {
namespace {

using test::make_bundle;
using test::Scratch;
using test::write_file;

TEST(Bundles, AreFoundOldestFirstWithSupportApart) {
  const Scratch scratch;
  for (const char* name : {"support", "13.0-nvcc", "12.8-nvrtc", "13.0-nvrtc", "13.10-nvrtc"})
    make_bundle(scratch.path(), name);
  std::filesystem::create_directory(scratch.path() / ".12.8-nvrtc.work");
  const BundleSet set = find_bundles(scratch.path());
  std::vector<std::string> names;
  for (const Bundle& bundle : set.bundles) names.push_back(bundle.name);
  EXPECT_EQ(names, (std::vector<std::string>{"12.8-nvrtc", "13.0-nvrtc", "13.0-nvcc", "13.10-nvrtc"}));
  EXPECT_TRUE(set.support);
  EXPECT_TRUE(set.problems.empty());
  EXPECT_TRUE(find_bundles(scratch.path() / "nowhere").bundles.empty());
}

TEST(Bundles, BrokenOnesAreNamedWithTheirProblem) {
  const Scratch scratch;
  make_bundle(scratch.path(), "12.8-nvrtc");
  std::filesystem::remove(make_bundle(scratch.path(), "13.0-nvrtc") / "manifest.json");
  write_file(make_bundle(scratch.path(), "13.1-nvrtc") / "manifest.json", "{\"schema\":");
  write_file(make_bundle(scratch.path(), "13.2-nvrtc") / "made_up.sm_90.cubin", "other code");
  std::filesystem::rename(make_bundle(scratch.path(), "13.3-nvrtc"), scratch.path() / "13.4-nvrtc");
  std::filesystem::remove(make_bundle(scratch.path(), "13.5-nvrtc") / "made_up.sm_90.cubin");
  const BundleSet set = find_bundles(scratch.path());
  EXPECT_EQ(set.bundles.size(), 1u);
  ASSERT_EQ(set.problems.size(), 5u);
  for (const BundleProblem& problem : set.problems) {
    EXPECT_NE(problem.sentence.find(problem.name), std::string::npos) << problem.sentence;
  }
}

TEST(Bundles, NativeCodeRunsOnItsOwnKind) {
  EXPECT_TRUE(runs_on("sm_90", "sm_90"));
  EXPECT_TRUE(runs_on("sm_80", "sm_86"));
  EXPECT_TRUE(runs_on("sm_120", "sm_121"));
  EXPECT_TRUE(runs_on("sm_90a", "sm_90"));
  EXPECT_FALSE(runs_on("sm_120a", "sm_121"));
  EXPECT_FALSE(runs_on("sm_86", "sm_80"));
  EXPECT_FALSE(runs_on("sm_90", "sm_100"));
  EXPECT_FALSE(runs_on("compute_90", "sm_90"));
}

TEST(Bundles, OtherHardwareIsASentence) {
  const Scratch scratch;
  make_bundle(scratch.path(), "13.0-nvrtc", "sm_120");
  const Bundle bundle = find_bundles(scratch.path()).bundles.at(0);
  EXPECT_EQ(hardware_problem(bundle, {"sm_120", "sm_120"}), "");
  const std::string problem = hardware_problem(bundle, {"sm_90"});
  EXPECT_NE(problem.find("sm_120"), std::string::npos);
  EXPECT_NE(problem.find("ARB_ARCHITECTURES=90"), std::string::npos);
}

}  // namespace
}  // namespace arb
