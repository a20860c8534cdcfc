// What timing needs: an empty node, a gate that starts all ranks together, a barrier between ranks, stamps.
#include "support.cuh"

ARB_SUPPORT_KERNEL(support_empty, StampParams) {}

ARB_SUPPORT_KERNEL(support_gate, GateParams) {
  const machine::WaitContext context{params.local, params.failure, params.deadline_ns, params.rank};
  machine::wait_reached_acquire_system(params.gate, params.opened, context, {Phase::gate, params.rank},
                                       machine::Site("gate"));
}

ARB_SUPPORT_KERNEL(support_stamp, StampParams) {
  *params.stamp = machine::now_ns();
}

// One block of any size; needs scratch and local state of its own.
ARB_SUPPORT_KERNEL(support_rank_barrier, KernelParams) {
  const u32 generation = machine::current_generation(params);
  machine::block_barrier(machine::Site("generation is read"));
  machine::signal_peers<0>(params, Phase::barrier, generation, machine::Site("barrier: signal"));
  machine::wait_for_peers<0>(params, Phase::barrier, generation, machine::Site("barrier: wait"));
  machine::finish_call(params, machine::Site("generation step"));
}

ARB_SUPPORT_KERNEL(support_clock_tick, ClockTickParams) {
  u64 smallest = ~0ull;
  u64 before = machine::now_ns();
  for (u32 steps = 0, reads = 0; steps < 64 && reads < 1000000; ++reads) {
    const u64 after = machine::now_ns();
    if (after == before) continue;
    if (after - before < smallest) smallest = after - before;
    before = after;
    ++steps;
  }
  *params.tick_ns = smallest;
}
