// Ring allreduce on the SMs: each rank writes to one neighbour only, so links carry one stream each way.
//
// The message is n shards; a block does its chunks of every shard on every rank, as a ring of its own with its own flags.
// next = rank + 1, previous = rank - 1 (mod n); all writes go to next. A chunk passes 2n - 1 stages, s = 0 .. 2n - 2:
//   reduce   s < n - 1: shard (rank - s) goes to next: at s = 0 the own input, later what previous sent in stage s - 1
//            plus the own input, rounded.
//   turn     s = n - 1: shard (rank + 1) is complete when the own input is added to what previous sent last: it goes to
//            the output and to next.
//   gather   s >= n: what previous sent goes to the output and, but for the last stage, on to next.
// In round t a block does chunk t - s of every stage s, so that the link is busy while sums are made: it acquires the
// flags of what previous sent in the round before, passes a barrier, does the stages, passes a barrier and releases the
// flags of what it has sent. Flag (reduce, block, s) or (gather, block, s - n + 1) counts the chunks of stage s.
// Each shard is summed by one rank and copied by the others, so all ranks have the same bits.
//
// Sum: shard c in the order c, c + 1, ..., c - 1, rounded to the dtype after every addition: n - 1 roundings.
// Reuse: scratch has an area of sums and one of results, where a shard lies at its own place in the message: no stage
// writes where another does. One of each is enough. The last gather flag of a chunk in call g, which a rank acquires
// before it ends, has come round the ring from next's turn of that chunk, so after next's last look at its sums: call
// g + 1 may overwrite them. The turn of call g + 1 overwrites next's results after a flag that came round from next's
// first stage of g + 1, so after all of next's call g (kernel boundary). Blocks that have other chunks in call g + 1
// know what all blocks of their rank knew (kernel boundary). In place: an element of the input is read before the
// output overwrites it: shard (rank + 1) by the same thread, the others a barrier before.
//
// Wire: 2 (n - 1)/n S a rank, to one peer. Scratch: 2 messages.
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
  const u64 count = params.count_elements;
  const ChunkedShares<Element> chunks(count, ranks);
  const u32 rounds = chunks.rounds();
  const u32 turn = ranks - 1;
  const u32 last = 2 * ranks - 2;
  const WaitContext context = wait_context(params);

  wait_for_previous_kernel(Site("previous kernel"));
  let_next_kernel_start();
  const u32 generation = current_generation(params);
  const u32 first = first_step(params, generation);
  count_steps(params, generation, rounds, Site("count of steps"));
  char* const sums = scratch_message(params, params.rank, 0);
  char* const sums_of_next = scratch_message(params, next, 0);
  char* const results = scratch_message(params, params.rank, 1);
  char* const results_of_next = scratch_message(params, next, 1);
  const auto phase_of = [&](u32 stage) { return stage < turn ? Phase::reduce : Phase::gather; };
  const auto flag = [&](u32 owner, u32 stage) {
    return flag_of(params, owner, phase_of(stage), block_index(), stage < turn ? stage : stage - turn);
  };

  for (u32 t = 0; t < rounds + last; ++t) {
    // Stages that have a chunk in this round: t - s of 0 .. rounds - 1.
    const u32 begin = t < rounds ? 0 : t - rounds + 1;
    const u32 end = t < last ? t + 1 : last + 1;
    for (u32 s = begin + thread_index(); s < end; s += thread_count())
      if (s > 0)
        wait_reached_acquire_system(flag(params.rank, s - 1), first + t - s, context,
                                    {phase_of(s - 1), previous}, Site("wait"));
    if (end > 1) block_barrier(Site("block may read"));
    for (u32 s = begin; s < end; ++s) {
      const VectorRange chunk = chunks.chunk((params.rank + 2 * ranks - s) % ranks, t - s);
      if (s == 0)
        copy_range<Element>(sums_of_next, params.input, count, chunk);
      else if (s < turn)
        add_ranges<Element>(sums_of_next, nullptr, sums, params.input, count, chunk);
      else if (s == turn)
        add_ranges<Element>(params.output, results_of_next, sums, params.input, count, chunk);
      else
        copy_range<Element>(params.output, s < last ? results_of_next : nullptr, results, count, chunk);
    }
    if (begin == last) continue;
    block_barrier(Site("block has sent"));
    for (u32 s = begin + thread_index(); s < end && s < last; s += thread_count())
      store_release_system(flag(next, s), first + t - s, Site("signal"));
  }
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(ring)
