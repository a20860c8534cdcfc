// Ring allreduce on the SMs: each rank writes to one neighbour only, so links carry one stream each way.
//
// The message is n shards; block b does part b of every shard on every rank, as a ring of its own with its own
// flags. next = rank + 1, previous = rank - 1 (mod n); all writes go to next.
//   reduce   step s = 0 .. n - 2: shard (rank - s) goes to next: at s = 0 the own input, later what previous sent in
//            step s - 1 plus the own input, rounded. Then a block barrier and a release of flag (reduce, b, s).
//            Before it uses what previous sent, a block acquires that flag and passes a barrier.
//   turn     shard (rank + 1) is complete when the own input is added to what step n - 2 brought: it goes to the
//            output and, as step 0 of the gather, to next.
//   gather   step s = 0 .. n - 2: what previous sent goes to the output and, but for the last step, on to next.
// Each shard is summed by one rank and copied by the others, so all ranks have the same bits.
//
// Sum: shard c in the order c, c + 1, ..., c - 1, rounded to the dtype after every addition: n - 1 roundings.
// Reuse: scratch has an area of sums and one of results, where a shard lies at its own place in the message: no
// step writes where another does. One of each is enough. The last gather flag of call g, which a rank acquires
// before it ends, has come round the ring from next's turn, so after next's last look at its sums: call g + 1 may
// overwrite them. The turn of call g + 1 overwrites next's results after a flag that came round from next's first
// step of g + 1, so after all of next's call g (kernel boundary). Blocks that have another part in call g + 1 know
// what all blocks of their rank knew (kernel boundary). In place: an element of the input is read before the output
// overwrites it: shard (rank + 1) by the same thread, the others a barrier before.
//
// Wire: 2 (n - 1)/n S a rank, to one peer. Scratch: 2 messages. Chunks are what blocks make of a shard.
// After the ring of Baidu and NCCL (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms").
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

template <class Element, u32 kRanks>
ARB_DEVICE void ring(const KernelParams& params) {
  using namespace machine;
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const u32 next = (params.rank + 1) % ranks;
  const u32 previous = (params.rank + ranks - 1) % ranks;
  const VectorRange message = whole_message<Element>(params.count_elements);
  const u64 count = params.count_elements;
  const WaitContext context = wait_context(params);

  wait_for_previous_kernel(Site("previous kernel"));
  let_next_kernel_start();
  const u32 generation = current_generation(params);
  char* const sums = scratch_message(params, params.rank, 0);
  char* const sums_of_next = scratch_message(params, next, 0);
  char* const results = scratch_message(params, params.rank, 1);
  char* const results_of_next = scratch_message(params, next, 1);
  const auto part_of_shard = [&](u32 shard) {
    return part_of(part_of(message, ranks, shard % ranks), block_count(), block_index());
  };
  const auto tell_next = [&](Phase phase, u32 step, Site done, Site signal) {
    block_barrier(done);
    if (thread_index() == 0)
      store_release_system(flag_of(params, next, phase, block_index(), step), generation, signal);
  };
  const auto await_previous = [&](Phase phase, u32 step, Site wait, Site ready) {
    if (thread_index() == 0)
      wait_reached_acquire_system(flag_of(params, params.rank, phase, block_index(), step), generation,
                                  context, {phase, previous}, wait);
    block_barrier(ready);
  };

  copy_range<Element>(sums_of_next, params.input, count, part_of_shard(params.rank));
  tell_next(Phase::reduce, 0, Site("reduce: block has sent"), Site("reduce: signal"));
  for (u32 step = 1; step < ranks; ++step) {
    await_previous(Phase::reduce, step - 1, Site("reduce: wait"), Site("reduce: block may read"));
    const u32 shard = params.rank + ranks - step;
    if (step < ranks - 1) {
      add_ranges<Element>(sums_of_next, nullptr, sums, params.input, count, part_of_shard(shard));
      tell_next(Phase::reduce, step, Site("reduce: block has sent on"), Site("reduce: signal on"));
    } else {
      add_ranges<Element>(params.output, results_of_next, sums, params.input, count, part_of_shard(shard));
      tell_next(Phase::gather, 0, Site("turn: block has sent"), Site("turn: signal"));
    }
  }
  for (u32 step = 0; step < ranks - 1; ++step) {
    await_previous(Phase::gather, step, Site("gather: wait"), Site("gather: block may read"));
    const bool last = step == ranks - 2;
    copy_range<Element>(params.output, last ? nullptr : results_of_next, results, count,
                        part_of_shard(params.rank + ranks - step));
    if (!last)
      tell_next(Phase::gather, step + 1, Site("gather: block has sent on"), Site("gather: signal on"));
  }
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(ring)
