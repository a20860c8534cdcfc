// Experiments whose processes hang, crash or talk nonsense: each ends in time, and none is called worked that
// did not.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "probe/experiments.h"
#include "probe/facts.h"
#include "scratch.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;

// A stand-in for the program: a shell script that gets "probe-child TASK ARGUMENTS...".
fs::path fake_program(const test::Scratch& scratch, const std::string& script) {
  const fs::path path = scratch.path() / "fake";
  test::write_file(path, "#!/bin/sh\n" + script);
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

Facts two_gpus() {
  Facts facts;
  for (std::uint32_t i = 0; i < 2; ++i) {
    facts.gpus.emplace_back();
    facts.gpus.back().answer.index = i;
    facts.gpus.back().answer.ordinal = i;
    facts.gpus.back().answer.compute_capability = "12.0";
  }
  for (std::uint32_t from = 0; from < 2; ++from) {
    facts.pairs.push_back({from, 1 - from, {}, {}, {}, {}, {}, true});
  }
  set_known(facts.map, "p2p.all", "true");
  return facts;
}

const Experiment& find(const std::vector<Experiment>& all, const std::string& id) {
  const auto found = std::ranges::find(all, id, &Experiment::id);
  if (found == all.end()) throw std::runtime_error("no experiment " + id);
  return *found;
}

std::vector<Experiment> run_with(const std::string& script, Facts& facts) {
  const test::Scratch scratch;
  DeepOptions options;
  options.program = fake_program(scratch, script);
  options.pair_deadline = std::chrono::milliseconds(500);
  options.budget = std::chrono::seconds(20);
  return run_experiments(Box("/nonexistent", {}, {}, {}), facts, options);
}

TEST(Deep, APairThatHangsFailsAndTheOthersAreStillTried) {
  Facts facts = two_gpus();
  const auto all = run_with(
      "case \"$2 $3\" in 'p2p 0') echo begin 1; sleep 60;; 'p2p 1') echo begin 0; echo worked 0 all "
      "arrived;; esac\n",
      facts);
  EXPECT_EQ(find(all, "peer path 0>1").state, "failed");
  EXPECT_NE(find(all, "peer path 0>1").detail.find("killed"), std::string::npos);
  EXPECT_EQ(find(all, "peer path 1>0").state, "worked");
  EXPECT_EQ(facts.map.at("deep.p2p").value, "false");
}

TEST(Deep, WrongBytesAndCrashesAreFailures) {
  Facts facts = two_gpus();
  const auto all = run_with(
      "case \"$2 $3\" in 'p2p 0') echo begin 1; echo failed 1 9 words are wrong;; 'p2p 1') echo begin 0; "
      "kill -SEGV $$;;"
      " vmm*) echo '{\"worked\": false, \"detail\": \"no import\"}';; ipc*) echo nonsense;; esac\n",
      facts);
  EXPECT_EQ(find(all, "peer path 0>1").detail, "9 words are wrong");
  EXPECT_NE(find(all, "peer path 1>0").detail.find("signal 11"), std::string::npos);
  EXPECT_EQ(find(all, "VMM export and import").state, "failed");
  EXPECT_EQ(find(all, "IPC between processes").state, "failed");
  EXPECT_EQ(facts.map.at("deep.vmm").value, "false");
  EXPECT_EQ(facts.map.at("deep.cluster").state, Fact::State::unknown) << "no compiler, so not run";
}

TEST(Deep, ACompilerThatHangsLeavesTimeForTheRest) {
  const test::Scratch scratch;
  Facts facts = two_gpus();
  for (const char* const version : {"12.9", "13.0"}) {
    const bool hangs = std::string(version) == "12.9";
    const fs::path nvcc = scratch.path() / version / "nvcc";
    test::write_file(nvcc, hangs ? "#!/bin/sh\nsleep 60\n" : "#!/bin/sh\necho made > \"$4\"\n");
    fs::permissions(nvcc, fs::perms::owner_all);
    facts.nvccs.push_back({nvcc.string(), nvcc.parent_path().string(), version, "PATH", true});
  }
  DeepOptions options;
  options.program = fake_program(scratch, "exit 0\n");
  options.compile_deadline = std::chrono::milliseconds(400);
  const auto begin = std::chrono::steady_clock::now();
  const auto all = run_experiments(Box("/nonexistent", {}, {}, {}), facts, options);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  std::size_t killed = 0;
  std::size_t skipped = 0;
  for (const Experiment& one : all) {
    if (!one.id.starts_with("compile") || !one.id.ends_with("12.9-nvcc")) continue;
    killed += one.state == "failed" ? 1U : 0U;
    skipped += one.state == "not run" ? 1U : 0U;
  }
  EXPECT_GE(killed, 1u);
  EXPECT_EQ(killed + skipped, 3u);
  EXPECT_EQ(find(all, "compile sm_120 13.0-nvcc").state, "worked");
  EXPECT_EQ(find(all, "peer path 0>1").state, "failed") << "tried";
}

TEST(Deep, ASilentChildProvesNothing) {
  Facts facts = two_gpus();
  const auto all = run_with("exit 0\n", facts);
  EXPECT_EQ(find(all, "peer path 0>1").state, "failed");
  EXPECT_EQ(facts.map.at("deep.p2p").value, "false");
}

TEST(Deep, WithoutAGpuEachSaysWhy) {
  Facts facts;
  const test::Scratch scratch;
  Answers answers;
  answers.driver_why = "no NVIDIA driver";
  DeepOptions options;
  options.program = fake_program(scratch, "exit 9\n");
  const auto all = run_experiments(Box("/nonexistent", {}, answers, {}), facts, options);
  EXPECT_GE(all.size(), 6u);
  for (const Experiment& one : all) {
    EXPECT_EQ(one.state, "not run") << one.id;
    EXPECT_FALSE(one.detail.empty()) << one.id;
  }
}

TEST(Deep, NoPeerAccessIsNotRunAndSaidOfEachPair) {
  Facts facts = two_gpus();
  for (PairAnswer& pair : facts.pairs) pair.driver_access = false;
  const auto all = run_with("exit 0\n", facts);
  EXPECT_EQ(find(all, "peer path 0>1").state, "not run");
  EXPECT_EQ(facts.map.at("deep.p2p").state, Fact::State::unknown);
}

}  // namespace
}  // namespace arb::probe
