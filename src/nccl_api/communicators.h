// The ranks of one allreduce that this process holds, all or one of them; one host thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nccl_api/library.h"
#include "types.h"

namespace arb::nccl {

namespace entry {
struct Comm;
struct Window;
enum class Result : unsigned;
}  // namespace entry

// By what processes find each other in ncclCommInitRank; bytes to hand around.
using UniqueId = std::array<std::byte, 128>;
// A new one; rank 0 makes it. Throws nccl::Error.
UniqueId make_unique_id(const Library& library);

// One communicator a rank of this process. NCCL works through the runtime API, so on each device's
// primary context: streams and buffers must belong to that one. Every call may leave another device's primary
// context current on this thread; make yours current again before driver calls. Not for use from two threads
// at once. Any DebugLog must outlive it.
class Communicators {
 public:
  // Sets all ranks up in this process, rank r on devices[r], which takes seconds; `devices` are CUDA
  // ordinals, each at most once. Throws nccl::Error.
  Communicators(Library library, std::span<const std::uint32_t> devices);
  // Sets one rank of `count` up, on the device of the current context, together with the processes of the
  // others; waits for them without a deadline. Throws nccl::Error.
  Communicators(Library library, std::uint32_t rank, std::uint32_t count, const UniqueId& id);
  // Never throws and hides no hang: a communicator whose call failed is aborted, any other gives its window
  // back and is destroyed, which waits for the work given to it.
  ~Communicators();
  Communicators(Communicators&& other) noexcept;
  Communicators& operator=(Communicators&&) = delete;
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // Those of this process.
  [[nodiscard]] std::size_t ranks() const { return comms_.size(); }
  [[nodiscard]] const Library& library() const { return library_; }

  // Enqueues one sum over all ranks, those of this process in one group: its rank r reads inputs[r], writes
  // outputs[r] (the same pointer: in place) and runs on streams[r], a CUstream. Returns when everything is
  // enqueued, or captured where the streams capture. All spans have one entry a rank. Throws nccl::Error; the
  // communicators are then of no further use.
  void all_reduce(std::span<const void* const> inputs, std::span<void* const> outputs,
                  std::uint64_t count_elements, Dtype dtype, std::span<void* const> streams);

  // Registers `bytes` at memory[r] (nccl::Memory) of each rank of this process as a symmetric window, in one
  // group; the window before must be gone. A step that the ranks of all processes take together with the same
  // size; it waits for them without a deadline. False where NCCL reports success and has registered nothing.
  // Throws nccl::Error, as all_reduce; also where the library has no windows.
  bool register_windows(std::span<void* const> memory, std::uint64_t bytes);
  // Gives the window back, if there is one: a step of this process alone, which must be done before its memory
  // is freed, and when no work that uses it is under way. Throws nccl::Error.
  void deregister_windows();

  // Throws nccl::Error where work given earlier has failed since (a lost link, a fault in a kernel).
  void check();

  // Ends work that hangs on every rank of this process, and the communicators with it: the only call allowed
  // afterwards is the destructor.
  void abort() noexcept;

 private:
  // Throws unless the call succeeded; the communicators then count as broken.
  void expect(entry::Result result, const char* call, std::size_t rank);

  Library library_;
  std::vector<entry::Comm*> comms_;
  std::vector<entry::Window*> windows_;  // one a rank of this process, or none
  std::size_t first_rank_ = 0;           // of comms_
  std::size_t all_ranks_ = 0;            // of all processes
  bool broken_ = false;
};

}  // namespace arb::nccl
