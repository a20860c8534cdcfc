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
// On 4 and 8 ranks a message of equal shares whose vectors are whole and aligned, one for a thread, goes the short way
// of exchange.cuh, and its partial sum stays in registers; a rank may go either way, whatever its peers do.
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

// A rank's areas: for each of two slots those of the three hops.
struct HierarchicalAreas {
  const KernelParams& params;
  u32 members;
  u32 islands;
  u64 area_bytes;

  ARB_DEVICE HierarchicalAreas(const KernelParams& call, u32 island_members, u32 island_count)
      : params(call),
        members(island_members),
        islands(island_count),
        area_bytes(share_area_bytes(call.capacity_bytes, island_members)) {}
  ARB_DEVICE u64 slot_bytes() const { return (2 * members + islands) * area_bytes; }
  // From the scatter's to the gather's.
  ARB_DEVICE u64 to_gather_bytes() const { return (members + islands) * area_bytes; }
  ARB_DEVICE machine::Mailboxes team(u32 slot, u32 first_area, u32 own, u32 size, u32 first_rank,
                                     u32 rank_step) const {
    char* const base = machine::scratch_message(params, 0, 0) + slot * slot_bytes() + first_area * area_bytes;
    return {base, params.scratch.stride_bytes, area_bytes, own, size, first_rank, rank_step};
  }
  ARB_DEVICE machine::Mailboxes scattered(u32 slot) const {
    return team(slot, 0, params.rank % members, members, params.rank / members * members, 1);
  }
  ARB_DEVICE machine::Mailboxes across(u32 slot) const {
    return team(slot, members, params.rank / members, islands, params.rank % members, members);
  }
  ARB_DEVICE machine::Mailboxes gathered(u32 slot) const {
    return team(slot, members + islands, params.rank % members, members, params.rank / members * members, 1);
  }
  // Of this rank alone.
  ARB_DEVICE machine::Mailboxes nobody() const { return team(0, 0, 0, 1, params.rank, 0); }
};

// Short messages, without a branch that they do not need. False: this is none, and nothing was done.
template <class Element, u32 kMembers, u32 kIslands>
ARB_DEVICE bool short_hierarchical(const KernelParams& params) {
  using namespace machine;
  const HierarchicalAreas areas(params, kMembers, kIslands);
  const WaitContext context = wait_context(params);
  ShortShares<Element, kMembers> shares(params.output, params.input, params.count_elements,
                                        areas.scattered(0), areas.slot_bytes(), areas.to_gather_bytes());
  ShortHop<Element, kIslands> across(areas.across(0), areas.slot_bytes());
  if (!shares.fits()) return false;
  wait_for_previous_kernel(Site("short: previous kernel"));
  shares.load();
  const u32 slot = slot_of(current_generation(params), 2, Site("short: scratch slot"));
  shares.scatter(slot);
  // In the time that the peers' vectors take.
  let_next_kernel_start();
  across.open(slot);
  block_barrier(Site("short: generation is read"));
  finish_call(params, Site("short: generation step"));
  if (shares.has_vector()) {
    const auto partial = shares.reduce(context, Phase::reduce, Site("short: reduce: refill"));
    across.push(partial);
    shares.broadcast(across.receive(partial, context, Phase::exchange, Site("short: exchange: refill")));
  }
  shares.gather(context, Phase::gather, Site("short: gather: refill"));
  return true;
}

template <class Element, u32 kRanks>
ARB_DEVICE void hierarchical(const KernelParams& params) {
  using namespace machine;
  if constexpr (kRanks == 4) {
    if (params.island_ranks == 2 && short_hierarchical<Element, 2, 2>(params)) return;
  }
  if constexpr (kRanks == 8) {
    if (params.island_ranks == 4 && short_hierarchical<Element, 4, 2>(params)) return;
    if (params.island_ranks == 2 && short_hierarchical<Element, 2, 4>(params)) return;
  }
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const u32 members = params.island_ranks;
  const u32 islands = ranks / members;
  wait_for_previous_kernel(Site("previous kernel"));
  let_next_kernel_start();
  if (params.count_elements == 0) return;
  const u32 slot = slot_of(current_generation(params), 2, Site("scratch slot"));
  const WaitContext context = wait_context(params);
  const u64 count = params.count_elements;
  const bool is_whole = whole_message<Element>(count).end < members;
  const u32 shares = is_whole ? 1 : members;
  const u32 own_share = is_whole ? 0 : params.rank % members;
  const HierarchicalAreas areas(params, members, islands);
  const Mailboxes scattered = areas.scattered(slot);
  const Mailboxes across = areas.across(slot);
  const Mailboxes gathered = is_whole ? areas.nobody() : areas.gathered(slot);
  // Indexed like the message; only the own share is used.
  char* const partial = scratch_message(params, params.rank, 0) + 2 * areas.slot_bytes();

  scatter_shares<Element, 0>(params.input, count, shares, scattered);
  reduce_and_broadcast_share<Element, 0>(partial, params.input, count, own_share, shares, scattered, across,
                                         context, Phase::reduce, Site("reduce: refill"));
  reduce_and_broadcast_share<Element, 0>(params.output, partial, count, own_share, shares, across, gathered,
                                         context, Phase::exchange, Site("exchange: refill"));
  if (!is_whole)
    gather_shares<Element, 0>(params.output, count, gathered, context, Phase::gather, Site("gather: refill"));
  block_barrier(Site("generation is read"));
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(hierarchical)
