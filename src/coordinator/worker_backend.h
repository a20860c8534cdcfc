// GPUs as a Backend: one worker for all kernels of ours, one for each NCCL library and configuration, one for
// each peer library; or, with world processes, so many a rank.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend.h"
#include "catalog.h"
#include "errors.h"
#include "peer_files.h"
#include "worker_process.h"

namespace arb {

struct WorkerSetup {
  std::filesystem::path program = "/proc/self/exe";
  std::map<std::string, std::string> variables;  // set in every worker's environment
  World world = World::threads;                  // who holds the ranks
  std::vector<std::uint32_t> devices;            // CUDA ordinals; rank r on devices[r]
  std::vector<std::string> bundle_folders;       // of contenders
  std::string support_folder;                    // the support bundle, loaded by every worker
  std::vector<std::string> nccl_libraries;       // paths; each must load
  bool nccl_alternatives = false;  // the paths are alternatives: the first that loads is taken, or none
  std::map<std::string, PeerProgram> peers;          // by name; each is started with its first cell
  std::chrono::milliseconds deadline{30'000};        // of one wait on a device
  std::chrono::milliseconds cell_allowance{20'000};  // for buffers and capture, over the time that calls take
  std::filesystem::path log_folder;      // workers' output goes to worker-*.log here; empty: nowhere
  const Interrupt* interrupt = nullptr;  // must outlive the backend
};

// Each NCCL as it is has a worker from the start, which shows whether the library is of use; other
// configurations get theirs from get_ready(), or with their first cell. A worker is started again after it was
// lost or a cell failed in it. All figures are measured.
class WorkerBackend final : public Backend {
 public:
  // Starts the kernels' worker and one for each NCCL, all at once, and greets them. Throws EnvironmentError (a
  // bundle or a library of the user's does not load, or the driver refuses), WorkerLost, Interrupted.
  explicit WorkerBackend(WorkerSetup setup);
  ~WorkerBackend() override;

  [[nodiscard]] Evidence evidence() const override { return Evidence::measured; }
  [[nodiscard]] std::string world() const override { return std::string(name_of(setup_.world)); }
  // Throws Interrupted.
  void get_ready(std::span<const Cell> cells) override;
  // Throws WorkerLost, Interrupted, EnvironmentError when the worker refuses the cell as a whole.
  Outcome run(const Cell& cell) override;
  // Of the machine, whoever holds the ranks: measured at the first call by one worker that holds all of them.
  // Throws the same.
  std::optional<MachineLimits> limits() override;

  // One test of the machine by the kernels' worker, in the unit of its kind. Throws WorkerLost, Interrupted,
  // EnvironmentError when the test fails; the next one then gets a fresh worker.
  double measure(const LimitTest& test);

  // What the kernels' worker said, of rank 0 where there are several.
  [[nodiscard]] const Hello& hello() const;
  // The NCCLs that loaded: names for Cell::nccl ("2.28.9+cuda13.0", with #2 where two libraries say the
  // same).
  [[nodiscard]] std::vector<std::string> nccl_names() const;
  [[nodiscard]] std::vector<std::string> nccl_paths() const;
  // Why each has no symmetric windows, one sentence; empty where it has.
  [[nodiscard]] std::vector<std::string> nccl_window_problems() const;
  // One sentence on each NCCL that was tried and not taken.
  [[nodiscard]] const std::vector<std::string>& remarks() const { return remarks_; }
  // Ends all workers, politely.
  void quit();

 private:
  struct Member;
  // The worker of NCCL as it is.
  Member& plain_nccl(const std::string& nccl_name);
  // Made, but not started, where it is not there yet.
  Member& member_of(const Cell& cell);
  // The worker of a peer library, likewise.
  Member& peer_member(const CatalogRow& row);
  // Why a peer's worker cannot be had, one sentence; empty where it runs now. Throws Interrupted.
  std::string start_peer(Member& member) const;
  static bool is_plain_nccl(const Member& member);
  Member make_member(std::string who, const std::string& log, World world) const;
  void spawn(Member& member) const;  // starts its processes, which load at once
  void greet(Member& member) const;  // waits until they have
  void start(Member& member) const;  // both
  Reply ask(Member& member, const Request& request, std::chrono::milliseconds deadline,
            const std::string& doing) const;

  WorkerSetup setup_;
  std::vector<std::unique_ptr<Member>> members_;  // [0] is the kernels' worker
  std::optional<MachineLimits> limits_;
  std::vector<std::string> remarks_;
};

}  // namespace arb
