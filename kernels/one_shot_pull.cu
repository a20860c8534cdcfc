// One-shot allreduce by pulling: every rank reads the whole message of every rank and adds.
//
// Phases of block b, which does part b of the message in every call on every rank:
//   publish  staged: copy the own input into scratch[slot], slot = generation % 2. Block barrier, then a release
//            store of the generation to flag (publish, b, me) of each peer. Acquire the peers' flags, barrier.
//   pull     output = sum over ranks, in rank order, of scratch[slot] (symmetric: of the peers' inputs).
//   finish   symmetric only: signal and wait again, so that no rank's next kernel rewrites what a peer reads.
//
// Reuse of scratch (staged): call g + 2 overwrites the slot of call g. A rank's block gets there only after its
// call g + 1 has ended, so after every block of it has acquired a peer's publish flag of g + 1, which that peer's
// block stored after all of the peer's call g had ended (kernel boundary) and with it all its reads of the slot.
// So two slots need no finish phase. The grid size may change from call to call: flags are compared by
// generation, one a call.
//
// Wire: (n - 1) S a rank. In place: staged yes (each element is staged before any is overwritten, and by the
// block that overwrites it); symmetric no (peers read what the result would overwrite). Scratch: 2 messages
// (staged).
// After vLLM's custom allreduce and NVIDIA's one-shot kernels in TensorRT-LLM, with generations in device memory.
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

template <class Element, u32 kRanks>
ARB_DEVICE void one_shot_pull(const KernelParams& params) {
  using namespace machine;
  const bool staged = params.inputs.base == nullptr;
  const u32 generation = current_generation(params);
  const u32 slot = slot_of(generation, 2, Site("scratch slot"));
  const VectorRange part =
      part_of(whole_message<Element>(params.count_elements), block_count(), block_index());

  if (staged)
    copy_range<Element>(scratch_message(params, params.rank, slot), params.input, params.count_elements,
                        part);
  block_barrier(Site("publish: block is done"));
  signal_peers<kRanks>(params, Phase::publish, generation, Site("publish: signal"));
  wait_for_peers<kRanks>(params, Phase::publish, generation, Site("publish: wait"));
  block_barrier(Site("publish: block may read"));

  const Sources sources = staged ? scratch_messages(params, slot)
                                 : Sources{params.inputs.base, params.inputs.stride_bytes, params.ranks};
  reduce_range<Element, kRanks>(params.output, nullptr, sources, params.count_elements, part);

  if (!staged) {
    block_barrier(Site("finish: block has read"));
    signal_peers<kRanks>(params, Phase::finish, generation, Site("finish: signal"));
    wait_for_peers<kRanks>(params, Phase::finish, generation, Site("finish: wait"));
  }
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(one_shot_pull)
