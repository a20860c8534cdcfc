// One-shot allreduce by pushing: every rank writes its message to every rank, and each word says itself that it is
// there.
//
// Each vector of the own message is stored into this rank's area of every peer. For each vector of the result a
// thread polls the own areas until each peer's vector is there (no word is the sentinel), puts the sentinel back,
// adds in rank order and writes the result. There is no flag, no fence and no barrier between ranks. Short
// messages: the thread of that number on every rank does both for a vector, and where all vectors are whole and
// aligned, one for a thread, everything that needs no data is computed before the wait for the previous kernel.
// Long ones: half of the threads push and half receive, so that no push waits for an arrival. A rank may go either
// way, whatever its peers do: a vector lies at the same place.
//
// Reuse: areas have two slots, slot = generation % 2. A peer writes this rank's slot in call g + 2 after its call
// g + 1 has ended, in which it read something of every peer that the peer pushed in its call g + 1, so after that
// peer's call g had ended (or after it had waited for that end), and with it the refill of the slot. An empty
// message exchanges nothing and orders nothing: it does not count as a call.
// Assumes what machine/sentinel.cuh says: whole words, and kernel boundaries that order the whole system.
//
// Wire: (n - 1) S a rank. In place: yes. Scratch: 2 n messages, full of the sentinel before the first call.
// After the sentinel ("Lamport") kernels of TensorRT-LLM and FlashInfer, with a check of every word.
#include <arb/abi.h>

#include "machine/machine.cuh"

namespace arb {

template <class Element, u32 kRanks>
ARB_DEVICE void one_shot_push(const KernelParams& params) {
  using namespace machine;
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const u64 slot_bytes = ranks * params.capacity_bytes;
  ShortExchange<Element, kRanks> exchange(params.output, params.input, params.count_elements,
                                          mailboxes(params, ranks, 0, params.capacity_bytes), slot_bytes);
  const bool is_short = params.count_elements * Element::bytes <= most_prefetched_bytes();
  if (is_short)
    exchange.prefetch();
  else
    let_next_kernel_start();
  wait_for_previous_kernel(Site("previous kernel"));
  if (exchange.fits()) {
    exchange.load();
    exchange.push(slot_of(current_generation(params), 2, Site("short: scratch slot")));
    // In the time that the peers' vectors take.
    if (is_short) let_next_kernel_start();
    block_barrier(Site("short: generation is read"));
    finish_call(params, Site("short: generation step"));
    exchange.receive(wait_context(params), Phase::exchange, Site("short: refill"));
    return;
  }
  if (is_short) let_next_kernel_start();
  if (params.count_elements == 0) return;
  exchange_message<Element, kRanks>(
      params.output, params.input, params.count_elements,
      [&] {
        const u32 slot = slot_of(current_generation(params), 2, Site("scratch slot"));
        block_barrier(Site("generation is read"));
        finish_call(params, Site("generation step"));
        return mailboxes(params, ranks, slot * slot_bytes, params.capacity_bytes);
      },
      wait_context(params), Phase::exchange, Site("exchange: refill"));
}

}  // namespace arb

ARB_ONE_VECTOR_ALLREDUCE_KERNEL(one_shot_push)
