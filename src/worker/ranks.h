// The ranks that a worker drives from one thread, all of a run or one of them: streams, gates, failure
// records, schedules.
#pragma once

#include <arb/abi.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "catalog.h"
#include "code.h"
#include "cuda_api/device.h"
#include "cuda_api/graph.h"
#include "cuda_api/memory.h"
#include "cuda_api/stream.h"
#include "rendezvous.h"

namespace arb::worker {

// Around every tensor, and what no call may change there.
constexpr std::uint64_t guard_bytes = 256;
constexpr unsigned char guard_value = 0xA5;

// A wait on a device passed its deadline and ended, and the devices came back; what() says who waited for
// whom.
class DeviceDeadline : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One rank: a device (which virtual ranks may share) and what it launches on.
struct Rank {
  std::uint32_t number;
  std::uint32_t slot;  // its place among the ranks of this process; what each of these has is ordered so
  const cuda::Context* context;
  cuda::Stream stream;
  cuda::Event start;
  cuda::Event stop;
  cuda::DeviceBuffer gate_state;  // a LocalState for waits at the gate
  cuda::PinnedBuffer failure;     // a FailureRecord
};

// Symmetric scratch of one protocol and each rank's local state, all zero at first.
struct Workspace {
  cuda::SymmetricBuffer scratch;
  std::vector<cuda::DeviceBuffer> local;  // by slot
  std::uint64_t capacity_bytes = 0;
  std::uint64_t scratch_bytes = 0;  // behind the flags; guard bytes follow

  // Whether the bytes behind the rank's scratch are as they were.
  [[nodiscard]] bool guard_is_whole(const Rank& rank) const;
  // The rank's part of KernelParams: scratch, states and who it is; no tensors.
  [[nodiscard]] KernelParams params(const Rank& rank, std::uint32_t ranks, std::uint64_t deadline_ns) const;
};

// How processes that meet at `rendezvous`, which must outlive the result, share the parts of a buffer.
cuda::ShareParts share_over(Rendezvous& rendezvous);

// With a rank a process, whatever makes symmetric memory, replays, or asks all ranks is a step that all
// processes take together, in the same order; such a call also throws RendezvousError.
class Ranks {
 public:
  // All ranks in this process: rank r lives on contexts[r % contexts.size()], which must outlive this.
  // `deadline_ms` bounds every wait on a device.
  Ranks(const std::vector<cuda::Context>& contexts, std::uint32_t count, const SupportKernels& support,
        std::uint64_t deadline_ms);
  // One rank in this process, which meets the others at `rendezvous`; `ranks_a_gpu` share each GPU at most, on which
  // their processes may have to take turns of milliseconds.
  Ranks(const cuda::Context& context, Rendezvous& rendezvous, const SupportKernels& support,
        std::uint64_t deadline_ms, std::uint32_t ranks_a_gpu);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  Ranks(Ranks&&) = delete;
  Ranks& operator=(Ranks&&) = delete;

  // Of all processes.
  [[nodiscard]] std::uint32_t count() const { return count_; }
  // Those of this process, by slot.
  [[nodiscard]] Rank& operator[](std::uint32_t slot) { return ranks_[slot]; }
  [[nodiscard]] std::vector<Rank>& all() { return ranks_; }
  // Null where all ranks are in this process.
  [[nodiscard]] Rendezvous* rendezvous() const { return rendezvous_; }
  [[nodiscard]] const SupportKernels& support() const { return *support_; }
  [[nodiscard]] std::vector<const cuda::Context*> contexts() const;
  // More ranks than devices: for testing, never a performance figure.
  [[nodiscard]] bool oversubscribed() const { return ranks_a_gpu_ > 1; }
  [[nodiscard]] std::uint64_t deadline_ns() const { return deadline_ns_; }

  // `scratch_bytes` behind the flags, zeros or, if `sentinel`, all bits set; for messages of up to
  // `capacity_bytes`, a multiple of 256.
  Workspace make_workspace(std::uint64_t scratch_bytes, std::uint64_t capacity_bytes, bool sentinel = false);
  // Most blocks of `threads` threads that a rank may launch, so that all ranks' blocks run at the same time.
  [[nodiscard]] std::uint32_t most_blocks(const cuda::Kernel& kernel, std::uint32_t threads) const;
  // A symmetric buffer over all ranks.
  [[nodiscard]] cuda::SymmetricBuffer make_symmetric(std::uint64_t bytes_a_rank) const;

  // Waits until all processes are here.
  void meet(const char* doing) const;
  // Lists of all ranks, by rank, from those of this process, by slot; all equally long.
  template <class Value>
  std::vector<std::vector<Value>> from_all(const char* doing, std::vector<std::vector<Value>> own) const {
    return rendezvous_ == nullptr
               ? std::move(own)
               : rendezvous_->gather_lists<Value>(doing, std::span<const Value>(own.front()));
  }
  // Each element the largest of all processes.
  [[nodiscard]] std::vector<double> slowest(const char* doing, std::vector<double> own) const;
  // Tells the other processes that this one cannot go on; they all end with this worker's next steps.
  void abandon(const char* why) const noexcept;

  // Holds `stream`, one of `rank`'s device, until open_gate().
  void hold(Rank& rank, const cuda::Stream& stream);
  // Lets everything held start, on all devices of this process together.
  void open_gate();
  // Waits until the streams of this process's ranks are empty. Throws DeviceDeadline when a wait on a device
  // failed. Where a device has not come back well past the deadline, it says so on stderr and ends the
  // process: destructors would hang.
  void wait(const char* doing);
  // The same for one further stream.
  void wait(const cuda::Stream& stream, const char* doing);

  // One replay of a graph a rank, by slot, all released together: at the gate, and with several processes at
  // a barrier of their devices behind it. The elapsed microseconds, event to event, of this process's
  // slowest.
  double replay_us(const std::vector<cuda::ExecutableGraph>& graphs, const char* doing);

 private:
  [[nodiscard]] std::optional<std::string> first_failure() const;

  void add_rank(std::uint32_t number, const cuda::Context& context);

  Rendezvous* rendezvous_ = nullptr;
  std::shared_ptr<cuda::RetiredMemory> retired_;
  std::uint32_t count_;
  std::vector<Rank> ranks_;
  const SupportKernels* support_;
  cuda::PinnedBuffer gate_;
  std::uint32_t opened_ = 0;
  std::uint64_t deadline_ns_;
  std::uint32_t ranks_a_gpu_;  // at most
  Workspace start_;            // of the barrier at which the devices of several processes meet
};

// Records one graph a rank of this process: explicit nodes, or whatever a library launches on the ranks'
// streams.
class Recorder {
 public:
  enum class Kind : std::uint8_t { nodes, capture, immediate };  // immediate: no graph, launch now

  Recorder(Ranks& ranks, Kind kind);
  // Ends captures that finish() did not, so that an error leaves the streams usable.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  Recorder(Recorder&&) = delete;
  Recorder& operator=(Recorder&&) = delete;

  template <class Parameters>
  void add(Rank& rank, const cuda::Kernel& kernel, cuda::GridShape shape, const Parameters& parameters,
           cuda::Edge edge = cuda::Edge::plain) {
    if (kind_ != Kind::nodes) {
      rank.stream.launch(kernel, shape, parameters);
    } else {
      graphs_[rank.slot].add_kernel(kernel, shape, parameters, edge);
    }
  }
  // `beside` as in Step; outside a graph copies and launches only follow one another.
  void add_copy(Rank& rank, std::byte* to, const std::byte* from, std::uint64_t bytes, bool beside) {
    if (kind_ != Kind::nodes) {
      rank.stream.copy(to, from, bytes);
    } else {
      graphs_[rank.slot].add_copy(to, from, bytes, beside);
    }
  }
  // Instantiated, uploaded; by slot.
  std::vector<cuda::ExecutableGraph> finish();

 private:
  Ranks* ranks_;
  Kind kind_;
  std::vector<cuda::GraphBuilder> graphs_;  // by slot; with Kind::capture filled by finish()
  bool capturing_ = false;
};

// Appends one call of a contender on one rank. `params` has the tensors of that rank, the workspace and the
// counts.
void add_call(Recorder& recorder, Rank& rank, const CatalogRow& row, const cuda::Kernel& kernel,
              const Workspace& workspace, KernelParams params, std::uint64_t bytes, LaunchShape shape,
              cuda::Edge edge);

}  // namespace arb::worker
