// Two-shot allreduce by pushing: every rank sends each peer the shard that the peer reduces, and the peer sends the
// sum to all. Both hops carry their own arrival, word by word, as in one_shot_push.
//
// The message is n shards; all threads of the grid share each, and vector i of every shard is the same thread's.
//   scatter  shard p goes into this rank's first area of peer p, for every peer.
//   reduce   each vector of the own shard: wait for every peer's, put the sentinel back, add in rank order, write
//            the sum to the output and into this rank's second area of every peer.
//   gather   each vector of the other shards: wait for its owner's sum, put the sentinel back, write it out.
// In place: a thread reads what it sends before it writes the same place. A message of equal shards whose vectors are
// whole and aligned, one for a thread, goes the short way of exchange.cuh; a rank may go either way, whatever its peers
// do: a vector lies at the same place.
//
// Reuse: two slots, slot = generation % 2, as in one_shot_push: a rank that ends call g + 1 has read something of
// every peer that the peer pushed in call g + 1. Where a message has fewer vectors than there are ranks, some would
// send or own nothing; then every rank sends the whole message and reduces it, as in one_shot_push.
// Assumes what machine/sentinel.cuh says.
//
// Wire: 2 (n - 1)/n S a rank. Scratch: 4 n shares, full of the sentinel before the first call.
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

// Short messages, without a branch that they do not need. False: this is none, and nothing was done.
template <class Element, u32 kRanks>
ARB_DEVICE bool short_two_shot_push(const KernelParams& params) {
  using namespace machine;
  const u64 area_bytes = share_area_bytes(params.capacity_bytes, kRanks);
  const u64 slot_bytes = kRanks * area_bytes;
  const WaitContext context = wait_context(params);
  ShortShares<Element, kRanks> shares(params.output, params.input, params.count_elements,
                                      mailboxes(params, kRanks, 0, area_bytes), slot_bytes, 2 * slot_bytes);
  if (!shares.fits()) return false;
  wait_for_previous_kernel(Site("short: previous kernel"));
  shares.load();
  shares.scatter(slot_of(current_generation(params), 2, Site("short: scratch slot")));
  // In the time that the peers' vectors take.
  let_next_kernel_start();
  block_barrier(Site("short: generation is read"));
  finish_call(params, Site("short: generation step"));
  if (shares.has_vector())
    shares.broadcast(shares.reduce(context, Phase::reduce, Site("short: reduce: refill")));
  shares.gather(context, Phase::gather, Site("short: gather: refill"));
  return true;
}

template <class Element, u32 kRanks>
ARB_DEVICE void two_shot_push(const KernelParams& params) {
  using namespace machine;
  if constexpr (kRanks != 0) {
    if (short_two_shot_push<Element, kRanks>(params)) return;
  }
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  wait_for_previous_kernel(Site("previous kernel"));
  let_next_kernel_start();
  if (params.count_elements == 0) return;
  const u64 count = params.count_elements;
  const u64 area_bytes = share_area_bytes(params.capacity_bytes, ranks);
  const u32 slot = slot_of(current_generation(params), 2, Site("scratch slot"));
  const Mailboxes first = mailboxes(params, ranks, slot * ranks * area_bytes, area_bytes);
  const Mailboxes second = mailboxes(params, ranks, (2 + slot) * ranks * area_bytes, area_bytes);
  const WaitContext context = wait_context(params);

  if (whole_message<Element>(count).end < ranks) {
    exchange_message<Element, kRanks>(
        params.output, params.input, count, [&] { return first; }, context, Phase::exchange,
        Site("exchange: refill"));
  } else {
    scatter_shares<Element, kRanks>(params.input, count, ranks, first);
    reduce_and_broadcast_share<Element, kRanks>(params.output, params.input, count, params.rank, ranks, first,
                                                second, context, Phase::reduce, Site("reduce: refill"));
    gather_shares<Element, kRanks>(params.output, count, second, context, Phase::gather,
                                   Site("gather: refill"));
  }
  block_barrier(Site("generation is read"));
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(two_shot_push)
