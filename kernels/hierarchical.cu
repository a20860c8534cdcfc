// Hierarchical allreduce by pushing, for boxes whose ranks form islands: links inside an island are good, those across
// are few. Only the sums of an island's shares cross, once each way, in equal parts by every rank.
//
// n ranks in G islands of m = island_ranks; a rank's team is its island, its partners are the ranks with its number in
// the other islands. The message is m shares; all threads of the grid share each, and vector i of every share is the
// same thread's.
//   scatter   share p goes to island member p.
//   reduce    each vector of the own share: wait for the island's, add in member order, round: the island's partial
//             sum, kept in scratch and pushed to the partners.
//   exchange  wait for the partners' partial sums, add in island order, round: the result, written to the output and
//             pushed to the island.
//   gather    the other shares from their owners in the island.
// Partners add the same partial sums in the same order, so all ranks have the same bits. Every hop carries its own
// arrival as in one_shot_push.
//
// Sum: fp32 within the island in member order, rounded; then fp32 over islands, rounded.
// Reuse: two slots, slot = generation % 2. A rank that ends call g + 1 has read something that each rank to which it
// writes pushed in call g + 1: island members send it parts of its share, partners their partial sums. A message with
// fewer vectors than an island has ranks cannot be shared so that everyone sends everyone something: there the whole
// of it goes to every island member, every rank owns all of it, and there is nothing to gather. So in calls of both
// kinds, which may follow one another, the same ranks write to each other and hear of each other. (A short message
// exchanged between all ranks would not do: a rank hears of one that is neither in its island nor its partner only
// through a third, and nothing orders what that one passes on with what it has read.)
// Assumes what machine/sentinel.cuh says.
//
// Wire: 2 (m - 1)/m S in the island, (G - 1)/m S across. In place: yes, as in two_shot_push.
// Scratch: for each slot m + G + m areas of a share, full of the sentinel before the first call, and one partial sum.
// After the multi-level schemes of NCCL and of the HiCCL paper, in one kernel.
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

template <class Element, u32 kRanks>
ARB_DEVICE void hierarchical(const KernelParams& params) {
  using namespace machine;
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const u32 members = params.island_ranks;
  const u32 islands = ranks / members;
  const u32 member = params.rank % members;
  const u32 island = params.rank / members;
  wait_for_previous_kernel(Site("previous kernel"));
  let_next_kernel_start();
  if (params.count_elements == 0) return;
  const u32 generation = current_generation(params);
  const u32 slot = slot_of(generation, 2, Site("scratch slot"));
  const WaitContext context = wait_context(params);
  const u64 area_bytes = share_area_bytes(params.capacity_bytes, members);
  const u64 count = params.count_elements;
  const bool is_short = whole_message<Element>(count).end < members;
  const u32 shares = is_short ? 1 : members;
  const u32 own_share = is_short ? 0 : member;

  const auto team = [&](u32 first_area, u32 own, u32 size, u32 first_rank, u32 rank_step) {
    const Mailboxes mail{
        scratch_message(params, 0, 0) + (slot * (2 * members + islands) + first_area) * area_bytes,
        params.scratch.stride_bytes,
        area_bytes,
        own,
        size,
        first_rank,
        rank_step};
    return mail;
  };
  const Mailboxes scattered = team(0, member, members, island * members, 1);
  const Mailboxes across = team(members, island, islands, member, members);
  const Mailboxes gathered = is_short ? team(0, 0, 1, params.rank, 0)
                                      : team(members + islands, member, members, island * members, 1);
  // Indexed like the message; only the own share is used.
  char* const partial = scratch_message(params, params.rank, 0) + 2 * (2 * members + islands) * area_bytes;

  scatter_shares<Element, 0>(params.input, count, shares, scattered);
  reduce_and_broadcast_share<Element, 0>(partial, params.input, count, own_share, shares, scattered, across,
                                         context, Phase::reduce, Site("reduce: refill"));
  reduce_and_broadcast_share<Element, 0>(params.output, partial, count, own_share, shares, across, gathered,
                                         context, Phase::exchange, Site("exchange: refill"));
  if (!is_short)
    gather_shares<Element, 0>(params.output, count, gathered, context, Phase::gather, Site("gather: refill"));
  block_barrier(Site("generation is read"));
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(hierarchical)
