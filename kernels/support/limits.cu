// What the machine itself can do: a flag between two ranks, and bytes by SM stores or loads.
#include "support.cuh"

// One thread. The flag carries no data, so its stores need no order.
ARB_SUPPORT_KERNEL(support_ping_pong, PingPongParams) {
  using namespace machine;
  const WaitContext context{params.local, params.failure, params.deadline_ns, params.rank};
  const Reason reason{Phase::barrier, params.peer};
  const u64 start_ns = now_ns();
  for (u32 round = 1; round <= params.rounds; ++round) {
    const u32 value = params.first_value + round;
    if (params.starts != 0) store_relaxed_system(params.peer_flag, value);
    wait_reached_acquire_system(params.own_flag, value, context, reason, Site("pong"));
    if (params.starts == 0) store_relaxed_system(params.peer_flag, value);
  }
  if (params.starts != 0) *params.elapsed_ns = now_ns() - start_ns;
}

// One block of 32 threads or more; makes params.step barriers of all ranks and writes how many nanoseconds they took to
// *params.output. The same number of barriers in every launch on a workspace, because flags count barriers. No data goes
// with them, so that their stores need no order.
ARB_SUPPORT_KERNEL(support_barriers, KernelParams) {
  using namespace machine;
  const u32 finished = (current_generation(params) - 1) * params.step;
  block_barrier(Site("generation is read"));
  const u64 start_ns = now_ns();
  for (u32 round = 1; round <= params.step; ++round) {
    for (u32 peer = thread_index(); peer < params.ranks; peer += thread_count())
      if (peer != params.rank)
        store_relaxed_system(flag_of(params, peer, Phase::barrier, block_index(), params.rank),
                             finished + round);
    wait_for_peers<0>(params, Phase::barrier, finished + round, Site("barriers: wait"));
    block_barrier(Site("all have waited"));
  }
  if (thread_index() == 0) *static_cast<u64*>(params.output) = now_ns() - start_ns;
  finish_call(params, Site("generation step"));
}

// Every element is written: the loop is that of the contenders.
ARB_SUPPORT_KERNEL(support_move, MoveParams) {
  using namespace machine;
  copy_range<fp32>(params.to, params.from, params.bytes / fp32::bytes,
                   part_of({0, params.bytes / vector_bytes}, block_count(), block_index()));
}
