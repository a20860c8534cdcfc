// Ring allreduce with the copy engines between peers and the sums on the SMs: for sizes at which engines are faster
// than stores.
//
// The message is n shards. next = rank + 1, previous = rank - 1 (mod n). A call is a chain of nodes on one stream, in
// src/catalog.cpp: launches of this kernel, told apart by params.step, and engine copies, all to next:
//   step 0      writes the generation to a word of the own scratch, from which flags are copied.
//   copy        shard `rank` of the input to next's sums area, then the generation to flag (reduce, 0, 0) of next.
//   step k      k = 1 .. n - 1: waits for flag (reduce, 0, k - 1); shard (rank - k) = what lies in the sums area + the
//               own input, rounded; for k < n - 1 into the own outbox, for k = n - 1 into the output.
//   copy        that shard to next's sums area and flag (reduce, 0, k); after the last step k to next's results area
//               and flag (gather, 0, 0).
//   step n + s  s = 0 .. n - 2: waits for flag (gather, 0, s); shard (rank - s) of the output = the results area.
//   copy        for s < n - 2: that shard from the own results area to next's, and flag (gather, 0, s + 1).
//
// Ordering: nodes of a chain follow one another, and a node's accesses are visible everywhere before the next node's
// (assumed of engine copies as of kernels), so a flag that is copied after the data releases it. One thread of each
// block acquires the flag, then a block barrier.
// Reuse: addresses are in the graph, so there is one area of each kind, and as in ring that is enough: the last gather
// flag of call g has come round from next's step n - 1, so after next's last look at its sums; the first copy to
// next's results in call g + 1 comes after a flag that has come round from next's step 0 of g + 1, so after next's
// call g. In place: shard (rank + 1) is read before it is written by the same thread; the others in earlier nodes.
//
// Sum: as ring: n - 1 roundings in ring order. Wire: 2 (n - 1)/n S a rank, to one peer. Scratch: 3 messages.
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

template <class Element, u32 kRanks>
ARB_DEVICE void copy_ring(const KernelParams& params) {
  using namespace machine;
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const u32 previous = (params.rank + ranks - 1) % ranks;
  const u32 generation = current_generation(params);
  const WaitContext context = wait_context(params);
  const u32 step = params.step;

  if (step == 0) {
    if (block_index() == 0 && thread_index() == 0)
      store_relaxed_system(flag_of(params, params.rank, Phase::none, 0, 0), generation);
    return;
  }

  const VectorRange message = whole_message<Element>(params.count_elements);
  const auto part_of_shard = [&](u32 shard) {
    return part_of(part_of(message, ranks, shard % ranks), block_count(), block_index());
  };
  const bool reducing = step < ranks;
  if (thread_index() == 0)
    wait_reached_acquire_system(flag_of(params, params.rank, reducing ? Phase::reduce : Phase::gather, 0,
                                        reducing ? step - 1 : step - ranks),
                                generation, context, {reducing ? Phase::reduce : Phase::gather, previous},
                                Site("data: wait"));
  block_barrier(Site("data: block may read"));

  char* const sums = scratch_message(params, params.rank, 0);
  char* const results = scratch_message(params, params.rank, 1);
  char* const outbox = scratch_message(params, params.rank, 2);
  if (reducing) {
    add_ranges<Element>(step < ranks - 1 ? outbox : params.output, nullptr, sums, params.input,
                        params.count_elements, part_of_shard(params.rank + ranks - step));
  } else {
    copy_range<Element>(params.output, results, params.count_elements,
                        part_of_shard(params.rank + 2 * ranks - step));
  }
  if (step == 2 * ranks - 2) finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(copy_ring)
