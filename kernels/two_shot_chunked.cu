// Two-shot allreduce by pushing whole chunks, with a flag for each: for messages so long that a check of every word costs
// more than it saves.
//
// The message is n shards; a block does its chunks of every shard on every rank, round by round. In round t it
//   waits    for the peers' flags (reduce, block) of round t - 1 and (gather, block) of round t - 2; block barrier.
//   scatter  chunk t of shard p of the own input goes into this rank's area of peer p, for every peer.
//   reduce   chunk t - 1 of the own shard = the sum of what the peers sent and the own input; it goes to the output and
//            into the results area of every peer.
//   gather   chunk t - 2 of every other shard: from the results area to the output.
//   signals  after a block barrier: flag (reduce, block, me) of every peer for what was scattered and (gather, block, me)
//            for what was reduced.
// So links carry a chunk of each hop while others are summed and copied. Flags count the rounds of all calls.
//
// Reuse, with one area of each kind: a rank leaves call g only after acquiring every peer's last gather flag of g, which
// the peer stored after it had summed all that the rank sent: call g + 1 may overwrite the peers' areas. The results
// areas are overwritten in call g + 1 after every peer's reduce flag of g + 1, so after the peer's call g had ended
// (kernel boundary) and with it its reads of them. In place: a chunk of the output is written after the same chunk of
// the input was sent, a block barrier between; the own shard is read and written by the same thread.
//
// Wire: 2 (n - 1)/n S a rank. Scratch: n shares of inputs, then a message of results.
// Reduce-scatter and all-gather are Rabenseifner's halves; chunks with a flag each as in NCCL's Simple protocol.
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

template <class Element, u32 kRanks>
ARB_DEVICE void two_shot_chunked(const KernelParams& params) {
  using namespace machine;
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const u32 me = params.rank;
  const u64 count = params.count_elements;
  const u64 area_bytes = share_area_bytes(params.capacity_bytes, ranks);
  const ChunkedShares<Element> chunks(count, ranks);
  // Where a share's vectors would begin if the whole message lay there.
  const auto area_of = [&](u32 owner, u32 writer) {
    return scratch_message(params, owner, 0) + writer * area_bytes - u64{chunks.begin(owner)} * vector_bytes;
  };
  const auto results_of = [&](u32 owner) { return scratch_message(params, owner, 0) + ranks * area_bytes; };
  const u32 rounds = chunks.rounds();
  const u32 other_threads = thread_count() / 2;

  wait_for_previous_kernel(Site("previous kernel"));
  let_next_kernel_start();
  const u32 generation = current_generation(params);
  const u32 first = first_step(params, generation);
  count_steps(params, generation, rounds, Site("count of steps"));

  for (u32 t = 0; t < rounds + 2; ++t) {
    const bool scattering = t < rounds;
    const bool reducing = t >= 1 && t < rounds + 1;
    const bool gathering = t >= 2;
    if (reducing) wait_for_peers<kRanks>(params, Phase::reduce, first + t - 1, Site("reduce: wait"));
    if (gathering)
      wait_for_peers<kRanks>(params, Phase::gather, first + t - 2, Site("gather: wait"), other_threads);
    if (reducing || gathering) block_barrier(Site("block may read"));
    if (scattering)
      for (u32 step = 1; step < ranks; ++step) {
        const u32 peer = (me + step) % ranks;
        copy_range<Element>(area_of(peer, me), params.input, count, chunks.chunk(peer, t));
      }
    if (reducing) {
      const char* const own_area = area_of(me, 0);
      reduce_range_to_all<Element, kRanks>(
          [&](u32 k) -> void* {
            const u32 target = me + k < ranks ? me + k : me + k - ranks;
            return target == me ? params.output : results_of(target);
          },
          [&](u32 rank) -> const void* { return rank == me ? params.input : own_area + rank * area_bytes; },
          ranks, count, chunks.chunk(me, t - 1));
    }
    if (gathering)
      for (u32 step = 1; step < ranks; ++step) {
        const u32 owner = (me + step) % ranks;
        copy_range<Element>(params.output, results_of(me), count, chunks.chunk(owner, t - 2));
      }
    if (!scattering && !reducing) continue;
    block_barrier(Site("block has sent"));
    if (scattering) signal_peers<kRanks>(params, Phase::reduce, first + t, Site("reduce: signal"));
    if (reducing)
      signal_peers<kRanks>(params, Phase::gather, first + t - 1, Site("gather: signal"), other_threads);
  }
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(two_shot_chunked)
