// One-shot allreduce with the copy engines: they bring every message to every peer, and the SMs sum what arrives while it
// arrives. For long messages on few ranks, where engines are faster than stores.
//
// A call is, on each rank (copy_push_schedule in src/catalog.cpp):
//   step 0   writes the generation to a word of the own scratch, from which flags are copied; tells every peer that this
//            rank's areas are free, and waits until theirs are.
//   copies   to every peer: vectors engine_part(message) of the input into this rank's area there, then the generation
//            to flag (exchange, 0, me) there. They run beside step 1. Engines are no help with an input that is not
//            aligned to vectors: then there are none.
//   step 1   pushes what engines do not bring, as one_shot_push does; then, for each vector of the result: waits for
//            every peer's, puts the sentinel back, adds in rank order and writes the result. A vector that an engine
//            brings is there when no word of it is the sentinel, or else when the flag of its rank says so: then a
//            word that holds the sentinel is payload.
//
// Reuse: addresses are in the graph, so there is one area for each writer, and step 0 is the handshake: a rank tells that
// its areas are free after its call before has ended (kernel boundary), with all sentinels back in their places. In
// place: no, the output would overwrite what the engines have yet to read.
// Assumes that a 4-byte word is written and read whole; of an engine, that it writes every aligned word once, in any order,
// and that a copy that follows another in the graph writes after it; of a GPU, that copies make progress beside step 1,
// for which the peers wait.
//
// Sum: rank order, fp32, one rounding. Wire: (n - 1) S a rank. Scratch: n messages, full of the sentinel before the first
// call. Copy engines beside a kernel that follows the data by sentinel words: b12x's engine copies and the sentinel
// ("Lamport") kernels of TensorRT-LLM, put together.
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

template <class Element, u32 kRanks>
ARB_DEVICE void copy_push(const KernelParams& params) {
  using namespace machine;
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const u32 generation = current_generation(params);
  if (params.step == 0) {
    if (thread_index() == 0)
      store_relaxed_system(flag_of(params, params.rank, Phase::none, 0, 0), generation);
    signal_peers<kRanks>(params, Phase::publish, generation, Site("free: signal"));
    wait_for_peers<kRanks>(params, Phase::publish, generation, Site("free: wait"));
    return;
  }
  const bool by_engine = reinterpret_cast<u64>(params.input) % vector_bytes == 0;
  exchange_beside_engines<Element, kRanks>(
      params.output, params.input, params.count_elements, mailboxes(params, ranks, 0, params.capacity_bytes),
      engine_part(params.count_elements * Element::bytes), by_engine,
      {flag_of(params, params.rank, Phase::exchange, 0, 0), generation, Site("exchange: told")},
      wait_context(params), Phase::exchange, Site("exchange: refill"));
  block_barrier(Site("generation is read"));
  finish_call(params, Site("generation step"));
}

}  // namespace arb

ARB_ALLREDUCE_KERNEL(copy_push)
