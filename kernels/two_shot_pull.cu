// Two-shot allreduce by pulling: each rank reduces one shard of the message, then all gather the shards.
//
// The message is n shards; block b does part b of every shard in every call on every rank.
//   publish  staged: copy part b of all shards of the own input into the inputs area of scratch. Block barrier,
//            release the generation to flag (publish, b, me) of each peer, acquire theirs, barrier.
//   reduce   own shard = sum over ranks, in rank order, of the inputs areas (symmetric: of the peers' inputs);
//            written to the output and to the shards area of scratch. Barrier, signal, wait, barrier.
//   gather   output's other shards = the peers' shards areas.
//
// Reuse, with one area of each kind: a rank leaves call g only after acquiring every peer's reduce flag of g,
// which the peer stored after reading the rank's inputs; so call g + 1 may overwrite the inputs area and,
// symmetric, the next kernel may rewrite the input. The shards area is overwritten in call g + 1 after acquiring
// every peer's publish flag of g + 1, which the peer stored after its call g had ended (kernel boundary) and with
// it all its reads of the shards. In place works: shard p of the output is overwritten after peer p has signalled
// that it has read it.
//
// Wire: 2 (n - 1)/n S a rank. Scratch: a message of inputs, then one of shards.
// After vLLM's custom allreduce (two-stage), with generations in device memory and one flag a block.
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

template <class Element, u32 kRanks>
ARB_DEVICE void two_shot_pull(const KernelParams& params) {
  using namespace machine;
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const bool staged = params.inputs.base == nullptr;
  const u32 generation = current_generation(params);
  constexpr u32 inputs = 0;
  constexpr u32 shards = 1;
  const VectorRange message = whole_message<Element>(params.count_elements);
  const auto part_of_shard = [&](u32 shard) {
    return part_of(part_of(message, ranks, shard), block_count(), block_index());
  };

  if (staged)
    for (u32 shard = 0; shard < ranks; ++shard)
      copy_range<Element>(scratch_message(params, params.rank, inputs), params.input, params.count_elements,
                          part_of_shard(shard));
  block_barrier(Site("publish: block is done"));
  signal_peers<kRanks>(params, Phase::publish, generation, Site("publish: signal"));
  wait_for_peers<kRanks>(params, Phase::publish, generation, Site("publish: wait"));
  block_barrier(Site("publish: block may read"));

  const Sources sources = staged ? scratch_messages(params, inputs)
                                 : Sources{params.inputs.base, params.inputs.stride_bytes, params.ranks};
  reduce_range<Element, kRanks>(scratch_message(params, params.rank, shards), params.output, sources,
                                params.count_elements, part_of_shard(params.rank));
  block_barrier(Site("reduce: block is done"));
  signal_peers<kRanks>(params, Phase::reduce, generation, Site("reduce: signal"));
  wait_for_peers<kRanks>(params, Phase::reduce, generation, Site("reduce: wait"));
  block_barrier(Site("reduce: block may read"));

  for (u32 step = 1; step < ranks; ++step) {
    const u32 peer = (params.rank + step) % ranks;
    copy_range<Element>(params.output, scratch_message(params, peer, shards), params.count_elements,
                        part_of_shard(peer));
  }
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(two_shot_pull)
