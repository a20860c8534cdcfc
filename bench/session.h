// What a run needs before its first cell: checked options, GPUs or the emulated box, bundles, NCCLs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend.h"
#include "catalog.h"
#include "coordinator/bundles.h"
#include "coordinator/interrupt.h"
#include "coordinator/peer_files.h"
#include "coordinator/worker_backend.h"
#include "environment.h"
#include "options.h"
#include "plan.h"

namespace arb {

// The sweep that the options describe. Sizes are those given, or the defaults for `evidence`. Throws
// UsageError on a name that does not exist.
Sweep sweep_of(const RunOptions& options, Evidence evidence);

// Says one sentence to the user.
using Say = std::function<void(const std::string&)>;

// Decides between GPUs and emulation and makes backends. Nothing here needs CUDA: a worker is asked.
class Session {
 public:
  // Throws UsageError, EnvironmentError, Interrupted. `log_folder` gets the workers' output (empty: nowhere).
  // With `least_gpus` 1 a single GPU will do, and launch() must be told how many ranks it holds.
  Session(const RunOptions& options, const std::string& log_folder, const Interrupt& interrupt,
          const Say& say, std::uint32_t least_gpus = 2);

  // A fresh set of workers, or the emulated box. Throws EnvironmentError, WorkerLost, Interrupted.
  // With `with_limits` the machine's limits are measured by each.
  [[nodiscard]] std::unique_ptr<Backend> launch(const Say& say, bool with_limits = true);
  // The same for a team of `ranks` that take turns on the GPUs; NCCL takes part where none holds two of them.
  // For verification: the machine's limits are not measured.
  [[nodiscard]] std::unique_ptr<Backend> launch_team(const Say& say, std::uint32_t ranks);
  // A fresh set of workers, to be asked directly; GPUs only. Throws the same.
  [[nodiscard]] std::unique_ptr<WorkerBackend> launch_workers(const Say& say);
  // What there is to ask for; with GPUs known whole after the first launch().
  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] const Environment& environment() const { return environment_; }
  // Distinct GPUs under the ranks; empty when emulated.
  [[nodiscard]] std::optional<std::uint32_t> gpus() const;
  // "2xH200" or "emulated-4ranks", for the name of the results folder.
  [[nodiscard]] std::string hardware_name() const;

 private:
  void choose_bundles(const Say& say);
  void read_tuning(const Say& say);
  [[nodiscard]] std::uint32_t choose_islands() const;
  std::unique_ptr<WorkerBackend> start_workers(const Say& say, std::uint32_t ranks);
  [[nodiscard]] bool wants(bool (*which)(const CatalogRow& row)) const;
  void choose_peers();

  RunOptions options_;
  std::string log_folder_;
  const Interrupt& interrupt_;
  BundleSet found_;
  std::map<std::string, PeerProgram> peers_;  // by name
  Machine machine_;
  Environment environment_;
};

}  // namespace arb
