// A worker process a rank on real GPUs: the same cells as with all ranks in one process, right and with the
// same bits; memory shared both ways; one worker killed. Where no two GPUs reach each other two ranks share
// one: their processes take turns, so such cells are fewer, and marked, and their samples mean nothing. This process itself stays without CUDA.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "catalog.h"
#include "coordinator/bundles.h"
#include "coordinator/machine.h"
#include "coordinator/nccl_files.h"
#include "coordinator/peer_files.h"
#include "coordinator/worker_backend.h"
#include "cuda_api/device.h"
#include "cuda_api/memory.h"
#include "measure.h"
#include "rendezvous.h"
#include "worker/ranks.h"

namespace arb {
namespace {

using std::chrono::milliseconds;

std::filesystem::path bundles_folder() {
  const char* const chosen = std::getenv("ARB_BUNDLES");
  return chosen != nullptr ? chosen : ARB_BUNDLES_DIR;
}

std::filesystem::path program() {
  const char* const chosen = std::getenv("ARB_PROGRAM");
  return chosen != nullptr ? chosen : ARB_PROGRAM_FILE;
}

class Processes : public testing::Test {
 protected:
  void SetUp() override {
    const DriverFound driver = ask_driver(program(), nullptr, milliseconds(60'000));
    if (!driver.problem.empty()) GTEST_SKIP() << "no process can use a GPU here: " << driver.problem;
    gpus_ = mutual_peers(driver.hello.devices, std::nullopt);
    ASSERT_FALSE(driver.hello.devices.empty()) << "the driver works and shows no GPU";
    shared_ = gpus_.size() < 2;
    if (shared_) gpus_.assign(2, driver.hello.devices.front());
    bundles_ = find_bundles(bundles_folder());
  }
  void need_bundles() {
    if (bundles_.bundles.empty() || !bundles_.support)
      GTEST_SKIP() << "there are no bundles in " << bundles_folder();
  }
  [[nodiscard]] WorkerSetup setup(World world, std::size_t ranks) const {
    WorkerSetup setup;
    setup.program = program();
    setup.world = world;
    for (std::size_t rank = 0; rank < ranks; ++rank) setup.devices.push_back(gpus_[rank].ordinal);
    setup.bundle_folders = {bundles_.bundles.front().folder.string()};
    setup.support_folder = bundles_.support->folder.string();
    setup.deadline = milliseconds(5'000);
    return setup;
  }
  [[nodiscard]] Cell cell(const CatalogRow& row, std::size_t ranks, std::uint64_t bytes) const {
    Cell cell;
    cell.contender = row.contender;
    if (row.source == Source::kernel) cell.bundle = bundles_.bundles.front().name;
    cell.ranks = static_cast<std::uint32_t>(ranks);
    cell.bytes = bytes;
    cell.calls_per_graph = 5;
    cell.samples = 4;
    cell.warmups = 1;
    return cell;
  }

  void expect_times(const Outcome& outcome) const {
    const bool marked = std::ranges::find(outcome.flags, "oversubscribed") != outcome.flags.end();
    EXPECT_EQ(marked, shared_);
    ASSERT_FALSE(outcome.samples_us.empty());
    EXPECT_GT(*std::ranges::min_element(outcome.samples_us), 0);
  }

  std::vector<DeviceInfo> gpus_;
  bool shared_ = false;  // both ranks on one GPU
  BundleSet bundles_;
};

TEST_F(Processes, EveryContenderIsRightAndHasTheBitsOfThreads) {
  need_bundles();
  if (IsSkipped()) return;
  std::vector<std::size_t> counts = {2};
  if (gpus_.size() > 2) counts.push_back(gpus_.size());
  for (const std::size_t ranks : counts) {
    WorkerBackend threads(setup(World::threads, ranks));
    WorkerBackend processes(setup(World::processes, ranks));
    EXPECT_EQ(processes.world(), "processes");
    std::size_t cells = 0;
    for (const CatalogRow& row : catalog()) {
      if (row.source != Source::kernel || row.needs_islands) continue;
      for (const std::uint64_t bytes : {64ull, 6000ull, 3ull << 20}) {
        for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
          if (shared_ && dtype == Dtype::fp32) continue;
          for (const Place place : {Place::out, Place::in}) {
            if (place == Place::in && !row.in_place) continue;
            for (const Mode mode : {Mode::pipelined, Mode::isolated}) {
              Cell asked = cell(row, ranks, bytes);
              asked.dtype = dtype;
              asked.place = place;
              asked.mode = mode;
              SCOPED_TRACE(cell_name(asked));
              const Outcome one = threads.run(asked);
              const Outcome many = processes.run(asked);
              ASSERT_EQ(one.wrong + one.failure, "");
              ASSERT_EQ(many.wrong + many.failure, "");
              EXPECT_TRUE(many.correct);
              EXPECT_EQ(many.output_hash, one.output_hash);
              // Threads that share a GPU also share its places for blocks.
              if (!shared_) {
                EXPECT_EQ(many.ran, one.ran);
              }
              EXPECT_EQ(many.samples_us.size(), one.samples_us.size());
              expect_times(many);
              ++cells;
            }
          }
        }
      }
    }
    EXPECT_GT(cells, 0u);
    // Limits are the machine's: one process with all ranks measures them.
    const auto limits = processes.limits();
    ASSERT_TRUE(limits);
    EXPECT_GT(limits->flag_us, 0);
    EXPECT_GT(limits->bandwidth_gbps, 0);
    processes.quit();
    threads.quit();
  }
}

TEST_F(Processes, NcclIsRight) {
  need_bundles();
  if (IsSkipped()) return;
  if (shared_) GTEST_SKIP() << "NCCL takes a GPU a rank, and no two here reach each other";
  WorkerSetup asked = setup(World::processes, 2);
  asked.nccl_libraries = nccl_candidates({});
  asked.nccl_alternatives = true;
  WorkerBackend processes(asked);
  if (processes.nccl_names().empty()) GTEST_SKIP() << "no libnccl.so.2 loads here";
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::nccl) continue;
    if (needs_windows(row) && !processes.nccl_window_problems().front().empty()) continue;
    for (const std::uint64_t bytes : {1024ull, 1ull << 20}) {
      for (const Mode mode : {Mode::pipelined, Mode::isolated}) {
        Cell one = cell(row, 2, bytes);
        one.nccl = processes.nccl_names().front();
        one.mode = mode;
        SCOPED_TRACE(cell_name(one));
        const Outcome outcome = processes.run(one);
        EXPECT_EQ(outcome.wrong + outcome.failure, "");
        EXPECT_TRUE(outcome.correct);
        EXPECT_FALSE(outcome.samples_us.empty());
      }
    }
  }
  processes.quit();
}

TEST_F(Processes, PeersAreRightAndTheirGraphsReplay) {
  need_bundles();
  if (IsSkipped()) return;
  // The Python of each peer: ARB_PEER_PYTHON, or python3.
  const char* const python = std::getenv("ARB_PEER_PYTHON");
  std::vector<std::string> named = known_peers();
  for (std::string& name : named) {
    if (python != nullptr) name += std::string("=") + python;
  }
  std::vector<std::size_t> counts = {2};
  if (gpus_.size() > 2) counts.push_back(gpus_.size());
  for (const std::size_t ranks : counts) {
    WorkerSetup asked = setup(World::processes, ranks);
    asked.deadline = milliseconds(15'000);
    asked.peers = peer_programs(named, program().parent_path());
    WorkerBackend processes(asked);
    bool has_run = false;  // what runs once must run in every cell
    for (const CatalogRow& row : catalog()) {
      if (row.source != Source::peer) continue;
      // One that grows the memory, one that fits into it, and the smallest again.
      for (const std::uint64_t bytes : {1024ull, 3ull << 20, 1036ull, 1024ull}) {
        for (const Dtype dtype : all_dtypes) {
          for (const Place place : {Place::out, Place::in}) {
            for (const Mode mode : {Mode::pipelined, Mode::isolated}) {
              Cell one = cell(row, ranks, bytes);
              one.dtype = dtype;
              one.place = place;
              one.mode = mode;
              SCOPED_TRACE(cell_name(one));
              const Outcome outcome = processes.run(one);
              if (!refusal_of(row, {dtype, one.ranks, bytes, place}).empty()) {
                EXPECT_FALSE(outcome.failure.empty());
                continue;
              }
              if (!outcome.failure.empty() && !has_run)
                GTEST_SKIP() << row.peer << " does not run here: " << outcome.failure;
              has_run = true;
              EXPECT_EQ(outcome.failure, "");
              EXPECT_EQ(outcome.wrong, "");
              EXPECT_TRUE(outcome.correct);
              EXPECT_FALSE(outcome.samples_us.empty());
              EXPECT_TRUE(outcome.ran.starts_with(row.peer)) << outcome.ran;
            }
          }
        }
      }
    }
    processes.quit();
  }
}

// Children of this process, the workers among them.
std::vector<pid_t> children() {
  std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  std::vector<pid_t> found;
  for (pid_t pid = 0; file >> pid;) found.push_back(pid);
  return found;
}

TEST_F(Processes, AKilledWorkerEndsTheCellAndTheNextOneRuns) {
  need_bundles();
  if (IsSkipped()) return;
  WorkerBackend processes(setup(World::processes, 2));
  const auto row = std::ranges::find_if(catalog(), [](const CatalogRow& candidate) {
    return candidate.source == Source::kernel && !candidate.needs_islands;
  });
  Cell small = cell(*row, 2, 4096);
  ASSERT_TRUE(processes.run(small).correct);
  const std::vector<pid_t> workers = children();
  if (workers.size() != 2) GTEST_SKIP() << "this kernel does not list children in /proc";
  Cell large = cell(*row, 2, 1 << 20);
  large.samples = 1'000'000;
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(1'000));
    ::kill(workers[1], SIGKILL);
  });
  const auto begin = std::chrono::steady_clock::now();
  try {
    processes.run(large);
    ADD_FAILURE() << "a cell of a million samples was done before its worker was killed";
  } catch (const WorkerLost& lost) {
    EXPECT_NE(std::string(lost.what()).find("signal 9"), std::string::npos) << lost.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5'000));
  killer.join();
  EXPECT_TRUE(processes.run(small).correct);
  processes.quit();
}

// One process of two: buffers that each fills for the other, both ways of sharing. 0 when all is right.
int share_buffers(std::uint32_t rank, std::uint32_t ordinal, std::vector<Descriptor> sockets) {
  Rendezvous rendezvous(rank, 2, std::move(sockets), milliseconds(20'000));
  const cuda::Context context(ordinal);
  const auto retired = std::make_shared<cuda::RetiredMemory>();
  const cuda::ShareParts share = worker::share_over(rendezvous);
  const std::uint32_t peer = 1 - rank;
  for (const cuda::Sharing sharing : {cuda::Sharing::descriptors, cuda::Sharing::ipc}) {
    for (const std::uint64_t bytes : {100ull, 5ull << 20}) {
      {
        const cuda::SymmetricBuffer buffer(context, rank, 2, bytes, share, retired, sharing);
        if (buffer.sharing() != sharing) return 2;
        std::vector<std::byte> own(bytes);
        cuda::copy_to_host(context, own, buffer.data(rank));
        if (std::ranges::any_of(own, [](std::byte b) { return b != std::byte{0}; })) return 3;
        rendezvous.barrier("seen zeros");
        const std::vector<std::byte> sent(bytes, std::byte(10 + rank));
        cuda::copy_to_device(context, buffer.data(peer), sent);
        rendezvous.barrier("written to the peer");
        cuda::copy_to_host(context, own, buffer.data(rank));
        if (std::ranges::any_of(own, [&](std::byte b) { return b != std::byte(10 + peer); })) return 4;
        rendezvous.barrier("read");
      }
      rendezvous.barrier("unmapped");
      retired->free();
    }
  }
  return 0;
}

TEST_F(Processes, BuffersAreSharedByDescriptorAndByCudaIpc) {
  auto sockets = make_rendezvous_sockets(2);
  std::vector<pid_t> pids;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      std::vector<Descriptor> own = std::move(sockets[rank]);
      sockets.clear();
      int status = 1;
      try {
        status = share_buffers(rank, gpus_[rank].ordinal, std::move(own));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %u: %s\n", rank, error.what());
      }
      std::fflush(stderr);
      ::_exit(status);
    }
    pids.push_back(pid);
  }
  sockets.clear();
  for (const pid_t pid : pids) {
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "1: an error, 2: shared otherwise, 3: not zeroed, 4: other data";
  }
}

}  // namespace
}  // namespace arb
