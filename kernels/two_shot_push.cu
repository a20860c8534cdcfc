// Two-shot allreduce by pushing: every rank sends each peer the shard that the peer reduces, and the peer
// sends the sum to all. Both hops carry their own arrival, word by word, as in one_shot_push.
//
// The message is n shards; block b does part b of every shard in every call on every rank.
//   scatter  part b of shard p goes into this rank's first area of peer p, for every peer.
//   reduce   each vector of the own shard: wait for every peer's, put the sentinel back, add in rank order,
//   write the sum
//            to the output and into this rank's second area of every peer.
//   gather   each vector of the other shards: wait for its owner's sum, put the sentinel back, write it to
//   the output.
// In place: the own shard is read before it is written, by the thread that writes it; the others are sent in
// scatter before a block barrier, and written after it by whichever thread.
//
// Reuse: two slots, slot = generation % 2, as in one_shot_push: a rank that ends call g + 1 has read
// something of every peer that the peer pushed in call g + 1. Where a message has fewer vectors than there
// are ranks, some ranks send or own nothing, so a handshake is needed instead: then every rank reduces the
// whole message and the scatter is one-shot. Assumes what machine/sentinel.cuh says.
//
// Wire: 2 (n - 1)/n S a rank. Scratch: 4 n shares, filled with the sentinel before the first call.
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

template <class Element, u32 kRanks>
ARB_DEVICE void two_shot_push(const KernelParams& params) {
  using namespace machine;
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const VectorRange message = whole_message<Element>(params.count_elements);

  wait_for_previous_kernel(Site("previous kernel"));
  let_next_kernel_start();
  if (params.count_elements == 0) return;
  const u32 generation = current_generation(params);
  const u32 slot = slot_of(generation, 2, Site("scratch slot"));
  const u64 area_bytes = share_area_bytes(params.capacity_bytes, ranks);
  const Mailboxes first = mailboxes(params, ranks, slot * ranks * area_bytes, area_bytes);
  const Mailboxes second = mailboxes(params, ranks, (2 + slot) * ranks * area_bytes, area_bytes);
  const WaitContext context = wait_context(params);

  if (message.end < ranks) {
    exchange_range<Element, kRanks>(params.output, params.input, first, params.count_elements,
                                    part_of(message, block_count(), block_index()), context, Phase::exchange,
                                    Site("exchange: refill"));
    block_barrier(Site("generation is read"));
    finish_call(params, Site("generation step"));
    return;
  }

  const auto share_of = [&](u32 rank) { return share_of_message(message, ranks, rank); };
  scatter_shares<Element, kRanks>(params.input, first, params.count_elements, share_of);
  reduce_and_broadcast_share<Element, kRanks>(params.output, params.input, first, second,
                                              params.count_elements, share_of(params.rank), context,
                                              Phase::reduce, Site("reduce: refill"));
  block_barrier(Site("block has sent"));
  gather_shares<Element, kRanks>(params.output, second, params.count_elements, share_of, context,
                                 Phase::gather, Site("gather: refill"));
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(two_shot_push)
