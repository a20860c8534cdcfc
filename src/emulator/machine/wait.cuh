// The one place where a device waits: the emulated twin of kernels/machine/wait.cuh. A wait has no clock
// here: when nobody can run, the engine reports who waits for whom.
#pragma once

#include <arb/abi.h>

#include <machine/execution.cuh>
#include <machine/memory.cuh>

namespace arb::machine {

// Why somebody waits; becomes the sentence of a failure.
struct Reason {
  Phase phase;
  u32 peer;
};

// Where a wait reports on a GPU, and how long it may take there.
struct WaitContext {
  LocalState* local;
  FailureRecord* failure;
  u64 deadline_ns;
  u32 rank;
};

// Generations wrap: compare by signed difference.
inline bool reached(u32 seen, u32 expected) {
  return static_cast<int>(seen - expected) >= 0;
}

// Returns once *flag has reached `expected`, with acquire order at system scope, or when the run has failed.
inline void wait_reached_acquire_system(const u32* flag, u32 expected, const WaitContext&, Reason reason,
                                        Site site) {
  detail::engine().wait_reached(flag, expected, detail::acquire_system, reason.phase, reason.peer,
                                site.label);
}

}  // namespace arb::machine
