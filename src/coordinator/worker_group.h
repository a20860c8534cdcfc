// The workers that hold the ranks of one run together: one for all ranks, or one a rank. To the rest of the
// coordinator they are one.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "worker_process.h"

namespace arb {

// What all ranks found as one outcome, from each rank's own: sample i is the slowest rank's, data is right
// where it is right on all ranks and the same on all. A wrong rank makes the cell wrong, before one that
// could not run.
Outcome merged(std::span<const Outcome> by_rank);

class WorkerGroup {
 public:
  // Starts one worker a launch; several are the ranks in order, and get sockets on which they meet
  // (rendezvous.h). Throws std::system_error.
  explicit WorkerGroup(std::vector<WorkerLaunch> launches);

  // As WorkerProcess: one lost worker ends all.
  Reply request(const Request& request, std::chrono::milliseconds deadline, std::string_view doing);
  void quit(std::chrono::milliseconds patience) noexcept;
  [[nodiscard]] bool alive() const;

 private:
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  std::vector<WorkerProcess*> pointers_;  // the same
};

}  // namespace arb
