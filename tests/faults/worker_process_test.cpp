// What a worker can do wrong, one by one: each ends within the deadline and with one sentence.
#include "coordinator/worker_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "errors.h"
#include "scratch.h"

namespace arb {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

WorkerLaunch fake(const std::string& behaviour) {
  WorkerLaunch launch;
  launch.who = "the fake worker";
  launch.program = ARB_FAKE_WORKER;
  launch.arguments = {behaviour};
  return launch;
}

Request run_request(std::uint64_t bytes = 2048) {
  Cell cell;
  cell.contender = "alpha";
  cell.ranks = 2;
  cell.bytes = bytes;
  cell.samples = 3;
  return {.op = Op::run, .cell = cell};
}

// A fault: what the fake does, how it is classed, and words that its sentence must have.
struct Fault {
  const char* behaviour;
  WorkerLost::Cause cause;
  std::vector<const char*> words;
};

class WorkerFaults : public testing::TestWithParam<Fault> {};

TEST_P(WorkerFaults, EndsWithinTheDeadlineWithItsSentence) {
  const Fault& fault = GetParam();
  constexpr milliseconds deadline{1500};
  WorkerProcess worker(fake(fault.behaviour));
  const Clock::time_point begin = Clock::now();
  try {
    worker.request(run_request(), deadline, "running a cell");
    FAIL() << "answered";
  } catch (const WorkerLost& lost) {
    EXPECT_EQ(lost.cause(), fault.cause) << lost.what();
    const std::string sentence = lost.what();
    EXPECT_EQ(sentence.find('\n'), std::string::npos);
    EXPECT_TRUE(sentence.starts_with("the fake worker, running a cell: ")) << sentence;
    for (const char* word : fault.words)
      EXPECT_NE(sentence.find(word), std::string::npos) << word << " in: " << sentence;
  }
  EXPECT_LT(Clock::now() - begin, deadline + milliseconds(1500));
  EXPECT_FALSE(worker.alive());
  EXPECT_THROW(worker.request(run_request(), deadline, "asked again"), WorkerLost);
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerFaults,
    testing::Values(
        Fault{"dies_at_once", WorkerLost::Cause::died, {"status 5"}},
        Fault{"exit", WorkerLost::Cause::died, {"status 3", "about to give up"}},
        Fault{"crash", WorkerLost::Cause::died, {"signal 11", "illegal address in rank 1"}},
        Fault{"hang", WorkerLost::Cause::deadline, {"1.5 s", "rank 0 waits for rank 1"}},
        Fault{"deaf", WorkerLost::Cause::deadline, {"killed"}},
        Fault{"nonsense", WorkerLost::Cause::nonsense, {"Segmentation fault"}},
        Fault{"nan", WorkerLost::Cause::nonsense, {"not JSON"}},
        Fault{"half_line_and_end", WorkerLost::Cause::died, {"in the middle of an answer", "{\"cell\""}},
        Fault{"half_line_and_hang", WorkerLost::Cause::deadline, {"half a line came"}},
        Fault{"two_lines", WorkerLost::Cause::nonsense, {"more than one line"}},
        Fault{"wrong_cell", WorkerLost::Cause::wrong_cell, {"another cell", "4096"}},
        Fault{"wrong_op", WorkerLost::Cause::nonsense, {"quit"}},
        Fault{"endless_line", WorkerLost::Cause::nonsense, {"a line without end"}},
        Fault{"flood", WorkerLost::Cause::deadline, {"yyyy"}},
        Fault{"orphan", WorkerLost::Cause::died, {"signal 9", "my child lives on"}}),
    [](const auto& info) { return std::string(info.param.behaviour); });

TEST(WorkerProcess, AnswersWhatItIsAsked) {
  WorkerProcess worker(fake("good"));
  const Reply hello = worker.request({.op = Op::hello, .cell = {}}, milliseconds(5000), "asked");
  ASSERT_TRUE(hello.hello);
  EXPECT_EQ(hello.hello->devices.size(), 2u);
  const Reply reply = worker.request(run_request(), milliseconds(5000), "running");
  ASSERT_TRUE(reply.outcome);
  EXPECT_EQ(reply.outcome->samples_us.size(), 3u);
  worker.quit(milliseconds(2000));
  EXPECT_FALSE(worker.alive());
}

TEST(WorkerProcess, AFloodOfOutputDoesNotBlockAnAnswer) {
  const test::Scratch scratch;
  WorkerLaunch launch = fake("flood_then_answer");
  launch.log_file = scratch.path() / "worker.log";
  WorkerProcess worker(launch);
  EXPECT_TRUE(worker.request(run_request(), milliseconds(30'000), "running").outcome);
  worker.quit(milliseconds(2000));
  EXPECT_LT(std::filesystem::file_size(launch.log_file), 20u << 20) << "the log has an upper limit";
}

TEST(WorkerProcess, AnErrorReplyIsNoLoss) {
  WorkerProcess worker(fake("no_driver"));
  EXPECT_EQ(worker.request({.op = Op::hello, .cell = {}}, milliseconds(5000), "asked").error,
            "libcuda.so.1 is not there");
  EXPECT_TRUE(worker.alive());
}

TEST(WorkerProcess, OneThatDoesNotQuitIsKilled) {
  WorkerProcess worker(fake("never_quits"));
  worker.request({.op = Op::hello, .cell = {}}, milliseconds(5000), "asked");
  const Clock::time_point begin = Clock::now();
  worker.quit(milliseconds(300));
  EXPECT_LT(Clock::now() - begin, milliseconds(1500));
}

TEST(WorkerProcess, AProgramThatIsNotThereIsALoss) {
  WorkerLaunch launch = fake("good");
  launch.program = "/nowhere/arbench";
  WorkerProcess worker(launch);
  EXPECT_THROW(worker.request({.op = Op::hello, .cell = {}}, milliseconds(5000), "asked"), WorkerLost);
}

TEST(WorkerProcess, CtrlCEndsARequestAtOnce) {
  const Interrupt interrupt;
  WorkerLaunch launch = fake("hang");
  launch.interrupt = &interrupt;
  WorkerProcess worker(launch);
  std::thread user([] {
    std::this_thread::sleep_for(milliseconds(200));
    ::kill(::getpid(), SIGINT);
  });
  const Clock::time_point begin = Clock::now();
  EXPECT_THROW(worker.request(run_request(), milliseconds(30'000), "running"), Interrupted);
  EXPECT_LT(Clock::now() - begin, milliseconds(2000));
  EXPECT_FALSE(worker.alive());
  EXPECT_TRUE(interrupt.arrived());
  user.join();
  // Takes the signal, so that no later test of this process is interrupted by it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  EXPECT_EQ(::sigwaitinfo(&signals, nullptr), SIGINT);
}

// The process group of a worker whose coordinator was killed is gone soon after.
TEST(WorkerProcess, DiesWithItsCoordinator) {
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const pid_t coordinator = ::fork();
  ASSERT_GE(coordinator, 0);
  if (coordinator == 0) {
    WorkerProcess worker(fake("good"));
    worker.request({.op = Op::hello, .cell = {}}, milliseconds(5000), "asked");
    // The only child of this process.
    std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    pid_t child = -1;
    children >> child;
    [[maybe_unused]] const auto wrote = ::write(pipes[1], &child, sizeof child);
    ::kill(::getpid(), SIGKILL);
  }
  pid_t worker = -1;
  ASSERT_EQ(::read(pipes[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  ::waitpid(coordinator, nullptr, 0);
  ::close(pipes[0]);
  ::close(pipes[1]);
  if (worker <= 0) GTEST_SKIP() << "this kernel does not list children in /proc";
  const auto gone = [&] {
    std::ifstream status("/proc/" + std::to_string(worker) + "/stat");
    std::string id;
    std::string name;
    std::string state;
    return !(status >> id >> name >> state) || state == "Z" || state == "X";
  };
  for (int i = 0; i < 100 && !gone(); ++i) std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(gone());
}

}  // namespace
}  // namespace arb
