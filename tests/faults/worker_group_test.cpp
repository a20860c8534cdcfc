// Workers of one rank each, seen as one: what they found together, and what one of them can do to the others.
#include "coordinator/worker_group.h"

#include <gtest/gtest.h>

#include <limits>

namespace arb {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::vector<WorkerLaunch> fakes(std::uint32_t ranks, const std::string& behaviour) {
  std::vector<WorkerLaunch> launches;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    WorkerConfig config;
    for (std::uint32_t device = 0; device < ranks; ++device) config.devices.push_back(device);
    config.world = ranks > 1 ? World::processes : World::threads;
    config.rank = rank;
    WorkerLaunch launch;
    launch.who = "fake " + std::to_string(rank);
    launch.program = ARB_FAKE_WORKER;
    launch.arguments = worker_arguments(config);
    launch.arguments.insert(launch.arguments.begin(), behaviour);
    launches.push_back(launch);
  }
  return launches;
}

Request run_request_of_three() {
  Cell cell;
  cell.contender = "alpha";
  cell.ranks = 3;
  cell.bytes = 2048;
  cell.samples = 3;
  return {.op = Op::run, .cell = cell};
}

Outcome good(std::vector<double> samples_us) {
  Outcome outcome;
  outcome.samples_us = std::move(samples_us);
  outcome.correct = true;
  outcome.max_error = 0.25;
  outcome.output_hash = "aa";
  return outcome;
}

TEST(Merged, ASampleIsTheSlowestRanks) {
  std::vector<Outcome> outcomes = {good({1, 5, 3}), good({2, 4, 3}), good({1, 1, 9})};
  outcomes[0].ran = "RING LL";
  outcomes[1].flags = {"throttled"};
  outcomes[2].flags = {"throttled", "unchecked"};
  outcomes[2].max_error = 0.5;
  const Outcome all = merged(outcomes);
  EXPECT_EQ(all.samples_us, (std::vector<double>{2, 5, 9}));
  EXPECT_TRUE(all.correct);
  EXPECT_EQ(all.max_error, 0.5);
  EXPECT_EQ(all.output_hash, "aa");
  EXPECT_EQ(all.ran, "RING LL");
  EXPECT_EQ(all.flags, (std::vector<std::string>{"throttled", "unchecked"}));
  EXPECT_EQ(all.wrong + all.failure, "");
}

TEST(Merged, OneWrongRankMakesTheCellWrong) {
  std::vector<Outcome> outcomes = {good({1}), good({1})};
  outcomes[1].correct = false;
  outcomes[1].wrong = "rank 1 has 3 wrong elements";
  outcomes[1].max_error = std::numeric_limits<double>::infinity();
  const Outcome all = merged(outcomes);
  EXPECT_FALSE(all.correct);
  EXPECT_TRUE(all.samples_us.empty());
  EXPECT_EQ(all.wrong, "rank 1 has 3 wrong elements");
  EXPECT_EQ(all.max_error, std::numeric_limits<double>::infinity());
}

TEST(Merged, OtherBitsOnARankAreWrong) {
  std::vector<Outcome> outcomes = {good({1}), good({1}), good({1})};
  outcomes[2].output_hash = "bb";
  const Outcome all = merged(outcomes);
  EXPECT_FALSE(all.correct);
  EXPECT_TRUE(all.samples_us.empty());
  EXPECT_TRUE(all.wrong.starts_with("ranks differ")) << all.wrong;
}

TEST(Merged, AHangIsWrongAlsoWhereTheOthersOnlyGaveUp) {
  std::vector<Outcome> outcomes(2);
  outcomes[0].failure = "rank 1 gave up: rank 1 waited for rank 0";
  outcomes[1].wrong = "rank 1 waited for rank 0";
  const Outcome all = merged(outcomes);
  EXPECT_EQ(all.wrong, "rank 1 waited for rank 0");
  EXPECT_EQ(all.failure, "");
  EXPECT_FALSE(all.correct);
}

TEST(Merged, AFailureBehindAHangIsToldWithIt) {
  std::vector<Outcome> outcomes(2);
  outcomes[0].failure = "cuStreamSynchronize: illegal address";
  outcomes[1].wrong = "rank 1 waited for rank 0";
  EXPECT_EQ(merged(outcomes).wrong,
            "rank 1 waited for rank 0; another rank failed: cuStreamSynchronize: illegal address");
}

TEST(Merged, TheFirstFailureIsTheFailure) {
  std::vector<Outcome> outcomes = {good({1}), {}, {}};
  outcomes[1].failure = "no memory";
  outcomes[2].failure = "rank 1 gave up: no memory";
  const Outcome all = merged(outcomes);
  Outcome expected;
  expected.failure = "no memory";
  EXPECT_EQ(all, expected);
}

TEST(Merged, OtherNumbersOfSamplesAreAFailure) {
  EXPECT_NE(merged(std::vector<Outcome>{good({1, 2}), good({1})}).failure, "");
}

TEST(WorkerGroup, AnswersAsOne) {
  for (const std::uint32_t ranks : {1u, 2u, 5u}) {
    WorkerGroup group(fakes(ranks, "good"));
    const Reply hello = group.request({.op = Op::hello, .cell = {}}, milliseconds(5000), "asked");
    ASSERT_TRUE(hello.hello);
    EXPECT_EQ(hello.hello->devices.size(), 2u);
    const Reply reply = group.request(run_request_of_three(), milliseconds(5000), "running");
    ASSERT_TRUE(reply.outcome);
    EXPECT_EQ(reply.outcome->samples_us.size(), 3u);
    EXPECT_TRUE(group.alive());
    group.quit(milliseconds(2000));
    EXPECT_FALSE(group.alive());
  }
}

// One lost worker ends all of them at once, with one sentence that names it.
TEST(WorkerGroup, OneLostWorkerEndsAll) {
  struct Fault {
    const char* behaviour;
    const char* words;
    WorkerLost::Cause cause;
    milliseconds at_most;
  };
  for (const Fault& fault :
       {Fault{"rank2:exit", "status 3", WorkerLost::Cause::died, milliseconds(1'000)},
        Fault{"rank2:crash", "signal 11", WorkerLost::Cause::died, milliseconds(1'000)},
        Fault{"rank2:hang", "no answer", WorkerLost::Cause::deadline, milliseconds(3'500)},
        Fault{"rank2:nonsense", "nonsense", WorkerLost::Cause::nonsense, milliseconds(1'000)},
        Fault{"rank2:wrong_cell", "another cell", WorkerLost::Cause::wrong_cell, milliseconds(1'000)}}) {
    WorkerGroup group(fakes(3, fault.behaviour));
    group.request({.op = Op::hello, .cell = {}}, milliseconds(5000), "asked");
    const Clock::time_point begin = Clock::now();
    try {
      group.request(run_request_of_three(), milliseconds(2500), "running a cell");
      ADD_FAILURE() << fault.behaviour << ": answered";
    } catch (const WorkerLost& lost) {
      EXPECT_EQ(lost.cause(), fault.cause) << lost.what();
      const std::string sentence = lost.what();
      EXPECT_TRUE(sentence.starts_with("fake 2, running a cell: ")) << sentence;
      EXPECT_NE(sentence.find(fault.words), std::string::npos) << sentence;
    }
    EXPECT_LT(Clock::now() - begin, fault.at_most) << fault.behaviour;
    EXPECT_FALSE(group.alive());
    EXPECT_THROW(group.request(run_request_of_three(), milliseconds(1000), "asked again"), WorkerLost);
  }
}

TEST(WorkerGroup, OneThatDiesWhileTheOthersHangIsTheOneNamed) {
  // Ranks 0 and 1 never answer; rank 2 is gone long before their deadline.
  std::vector<WorkerLaunch> launches = fakes(3, "hang");
  launches[2].arguments.front() = "exit";
  WorkerGroup group(std::move(launches));
  const Clock::time_point begin = Clock::now();
  try {
    group.request(run_request_of_three(), milliseconds(20'000), "running a cell");
    ADD_FAILURE() << "answered";
  } catch (const WorkerLost& lost) {
    EXPECT_TRUE(std::string(lost.what()).starts_with("fake 2, ")) << lost.what();
  }
  EXPECT_LT(Clock::now() - begin, milliseconds(2'000));
}

TEST(WorkerGroup, AnErrorOfOneIsTheAnswerOfAll) {
  std::vector<WorkerLaunch> launches = fakes(2, "good");
  launches[1].arguments.front() = "no_driver";
  WorkerGroup group(std::move(launches));
  EXPECT_EQ(group.request({.op = Op::hello, .cell = {}}, milliseconds(5000), "asked").error,
            "libcuda.so.1 is not there");
  EXPECT_TRUE(group.alive());
}

TEST(WorkerGroup, OneThatDoesNotQuitIsKilledWithTheOthers) {
  WorkerGroup group(fakes(3, "rank1:never_quits"));
  group.request({.op = Op::hello, .cell = {}}, milliseconds(5000), "asked");
  const Clock::time_point begin = Clock::now();
  group.quit(milliseconds(300));
  EXPECT_LT(Clock::now() - begin, milliseconds(1500));
  EXPECT_FALSE(group.alive());
}

}  // namespace
}  // namespace arb
