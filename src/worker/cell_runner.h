// Runs one cell on this worker's GPUs, with a rank a process together with the other workers: buffers, one
// graph a rank, timed replays, and the check of what they left.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "catalog.h"
#include "cell.h"
#include "code.h"
#include "nccl_api/communicators.h"
#include "nccl_api/configuration.h"
#include "nccl_api/debug_log.h"
#include "nccl_api/windows.h"
#include "peer.h"
#include "ranks.h"

namespace arb::worker {

// NCCL in this process's one configuration.
struct Nccl {
  nccl::DebugLog log;  // before the library is used, and until the communicators are gone
  nccl::Library library;
  nccl::Windows windows;                               // freed after the communicators, which give them back
  std::unique_ptr<nccl::Communicators> communicators;  // made for the first cell that needs them

  explicit Nccl(const std::string& path) : library(nccl::Library::open(path)) {}
};

class CellRunner {
 public:
  // Null where this worker has no NCCL, or no peer library.
  CellRunner(Ranks& ranks, const Code& code, Nccl* nccl, Peer* peer, std::uint64_t l2_bytes)
      : ranks_(&ranks), code_(&code), nccl_(nccl), peer_(peer), l2_bytes_(l2_bytes) {}

  // Never throws for what a cell can ask: one that cannot run has Outcome::failure; one whose data is wrong,
  // or whose wait passed its deadline, has Outcome::wrong and no samples.
  Outcome run(const Cell& cell);

  // What the two stamps of an isolated call cost when nothing is between them, in microseconds; measured
  // once.
  double stamp_us();
  // The same with one empty node between them, stamps included.
  double isolated_empty_us();

 private:
  struct Tensors;
  struct Judged;

  Outcome run_checked(const Cell& cell, const CatalogRow& row);
  // The case that the cell names, in verify_cell.cpp.
  Outcome verify(const Cell& cell, const CatalogRow& row);
  Workspace& workspace_for(const CatalogRow& row, std::uint64_t bytes);
  std::vector<cuda::ExecutableGraph> record(const Cell& cell, const CatalogRow& row, const Tensors& tensors,
                                            std::uint32_t calls, LaunchShape shape);
  void start_nccl(const Cell& cell, const CatalogRow& row);
  // Makes NCCL's window hold so many bytes of each rank.
  void reserve_window(std::uint64_t bytes);
  // Why the peer library cannot run the cell, one sentence; empty: it can.
  [[nodiscard]] std::string peer_problem(const Cell& cell, const CatalogRow& row) const;
  // One call outside of any graph: what a library loads or allocates at its first call must not happen in a capture.
  void call_peer_once(const Cell& cell, const Tensors& tensors);
  void prepare(const Cell& cell, const Tensors& tensors, std::uint64_t seed);
  void judge(const Cell& cell, const CatalogRow& row, const Tensors& tensors, std::uint64_t seed,
             Judged& judged);
  static std::string broken_guard(const Tensors& tensors, const Rank& rank);
  void stamp(Recorder& recorder, Rank& rank, std::uint32_t index) const;
  [[nodiscard]] std::vector<double> isolated_us(std::uint32_t calls) const;
  void need_isolated_parts();
  double between_stamps_us(bool empty_node);

  Ranks* ranks_;
  const Code* code_;
  Nccl* nccl_;
  Peer* peer_;
  std::uint64_t l2_bytes_;
  std::map<std::string, Workspace, std::less<>> workspaces_;  // by contender
  std::vector<cuda::DeviceBuffer> stamps_;                    // two a call, by slot
  Workspace barrier_;
  std::optional<double> stamp_us_;
  Team team_{};
};

}  // namespace arb::worker
