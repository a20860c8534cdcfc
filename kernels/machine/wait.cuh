// The one place where a device waits. Every wait has a reason and a deadline: none can spin for ever.
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

// Where a wait reports, and how long it may take.
struct WaitContext {
  LocalState* local;
  FailureRecord* failure;
  u64 deadline_ns;
  u32 rank;
};

ARB_DEVICE u64 now_ns() {
  u64 value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

// The first failed wait of a rank takes the record; later ones leave it alone.
ARB_DEVICE void report_failure(const WaitContext& context, Reason reason, u32 expected, u32 seen) {
  if (exchange_relaxed_device(&context.local->failure_claim, 1) != 0) return;
  store_relaxed_system(&context.failure->rank, context.rank);
  store_relaxed_system(&context.failure->peer, reason.peer);
  store_relaxed_system(&context.failure->phase, static_cast<u32>(reason.phase));
  store_relaxed_system(&context.failure->block, block_index());
  store_relaxed_system(&context.failure->expected, expected);
  store_relaxed_system(&context.failure->seen, seen);
  store_release_system(&context.failure->failed, 1, Site("failure record"));
}

// Generations wrap: compare by signed difference.
ARB_DEVICE bool reached(u32 seen, u32 expected) {
  return static_cast<int>(seen - expected) >= 0;
}

// What a polling loop does now and then: true when it must give up, because the deadline passed or another
// wait of this rank failed. `start_ns` is 0 at first.
ARB_DEVICE bool must_give_up(u32 poll, u64& start_ns, const WaitContext& context, Reason reason, u32 expected,
                             u32 seen) {
  constexpr u32 polls_between_clock_reads = 256;
  if (__builtin_expect(poll % polls_between_clock_reads != 0, 1)) return false;
  if (load_relaxed_device(&context.local->failure_claim) != 0) return true;
  if (start_ns == 0) start_ns = now_ns();
  if (now_ns() - start_ns <= context.deadline_ns) return false;
  report_failure(context, reason, expected, seen);
  return true;
}

// Returns once *flag has reached `expected`, with acquire order at system scope. When the deadline passes, or
// another wait of this rank has failed, it reports and returns: the call then ends with wrong data, and the
// host, which reads the failure record after every replay, ends the run.
ARB_DEVICE void wait_reached_acquire_system(const u32* flag, u32 expected, const WaitContext& context,
                                            Reason reason, Site site) {
  u64 start_ns = 0;
  for (u32 poll = 1;; ++poll) {
    const u32 seen = load_acquire_system(flag, site);
    if (reached(seen, expected) || must_give_up(poll, start_ns, context, reason, expected, seen)) return;
  }
}

}  // namespace arb::machine
