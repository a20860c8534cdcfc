// Data that is its own flag: every 32-bit word of an area holds the sentinel until the writer's payload replaces it, and
// the reader puts the sentinel back. No fence, no flag, one one-way trip.
//
// What this rests on:
//   - a 4-byte word is written and read whole; vectors may arrive in any order and in pieces;
//   - the boundary between two kernels of a stream (or the wait for the previous kernel) orders all accesses of the
//     first before all of the second for the whole system, as a system-scope fence by every thread would.
// The sentinel is a NaN in every dtype (two NaNs for 2-byte types), so a payload word that equals it can be rewritten to
// another NaN; any payload is allowed.
#pragma once

#include <arb/abi.h>

#include <machine/execution.cuh>
#include <machine/mailboxes.cuh>
#include <machine/range.cuh>
#include <machine/types.cuh>
#include <machine/wait.cuh>

namespace arb::machine::detail {

ARB_DEVICE bool arrived(const Vector& vector) {
  return vector.word[0] != sentinel && vector.word[1] != sentinel && vector.word[2] != sentinel &&
         vector.word[3] != sentinel;
}

ARB_DEVICE void store_relaxed_system(Vector* address, const Vector& vector) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(vector.word[0]),
               "r"(vector.word[1]), "r"(vector.word[2]), "r"(vector.word[3])
               : "memory");
}

ARB_DEVICE Vector load_relaxed_system(const Vector* address) {
  Vector vector;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.word[0]), "=r"(vector.word[1]), "=r"(vector.word[2]), "=r"(vector.word[3])
               : "l"(address)
               : "memory");
  return vector;
}

// Asks for a vector to be brought near, reading nothing: allowed before the previous kernel has ended.
ARB_DEVICE void prefetch(const Vector* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// A plain load from global memory, also where the compiler has lost sight of what memory it is.
ARB_DEVICE Vector load_whole(const Vector* address) {
  Vector vector;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.word[0]), "=r"(vector.word[1]), "=r"(vector.word[2]), "=r"(vector.word[3])
               : "l"(address)
               : "memory");
  return vector;
}

ARB_DEVICE void store_whole(Vector* address, const Vector& vector) {
  *address = vector;
}

// Whether messages are moved vector by vector; an emulator may take them whole.
ARB_DEVICE constexpr bool goes_by_vector() {
  return true;
}

// Vector `index` of a message whose address is aligned to the element only; elements past the end are zero.
template <class Element>
ARB_DEVICE Vector load_vector(const void* message, u64 count_elements, u64 index, bool aligned) {
  constexpr u32 per_vector = elements_per_vector<Element>();
  if (__builtin_expect(aligned && (index + 1) * per_vector <= count_elements, 1))
    return static_cast<const Vector*>(message)[index];
  Vector vector{};
#pragma unroll
  for (u32 e = 0; e < per_vector; ++e) {
    const u64 i = index * per_vector + e;
    if (i < count_elements)
      vector.word[e * Element::bytes / 4] |= load_element<Element>(message, i)
                                             << (e * Element::bytes % 4 * 8);
  }
  return vector;
}

template <class Element>
ARB_DEVICE void store_vector(void* message, u64 count_elements, u64 index, bool aligned,
                             const Vector& vector) {
  constexpr u32 per_vector = elements_per_vector<Element>();
  if (__builtin_expect(aligned && (index + 1) * per_vector <= count_elements, 1)) {
    static_cast<Vector*>(message)[index] = vector;
    return;
  }
#pragma unroll
  for (u32 e = 0; e < per_vector; ++e) {
    const u64 i = index * per_vector + e;
    if (i < count_elements)
      store_element<Element>(message, i, vector.word[e * Element::bytes / 4] >> (e * Element::bytes % 4 * 8));
  }
}

// Polls one vector until all of it has arrived.
ARB_DEVICE Vector wait_arrived(const Vector* address, const WaitContext& context, Reason reason) {
  u64 start_ns = 0;
  for (u32 poll = 1;; ++poll) {
    const Vector vector = load_relaxed_system(address);
    if (arrived(vector) || must_give_up(poll, start_ns, context, reason, 0, sentinel)) return vector;
  }
}

ARB_DEVICE void refill_one(Vector* address, Site) {
  store_relaxed_system(address, Vector{{sentinel, sentinel, sentinel, sentinel}});
}

// Polls vector `index` of every peer until all have arrived. Ends early when the deadline passes, as every wait does
// (wait.cuh).
template <u32 kRanks>
ARB_DEVICE void wait_all_arrived(Vector (&part)[Peers<kRanks>::most], const Peers<kRanks>& peers, u32 index,
                                 const WaitContext& context, Phase phase) {
  constexpr u32 most = Peers<kRanks>::most;
  u64 start_ns = 0;
  for (u32 poll = 1;; ++poll) {
    u32 missing = most;
#pragma unroll
    for (u32 k = 0; k < most; ++k)
      if (peers.has(k)) part[k] = load_relaxed_system(peers.from(k) + index);
#pragma unroll
    for (u32 k = 0; k < most; ++k)
      if (peers.has(k) && !arrived(part[k])) missing = k;
    if (missing == most ||
        must_give_up(poll, start_ns, context, {phase, peers.rank_of(missing)}, 0, sentinel))
      return;
  }
}

// The same where copy engines bring vectors as they are: whatever a vector holds once its peer's flag has told of the
// end of the copies has arrived.
template <u32 kRanks>
ARB_DEVICE void wait_all_arrived_or_told(Vector (&part)[Peers<kRanks>::most], const Peers<kRanks>& peers,
                                         u32 index, const Told& told, const WaitContext& context,
                                         Phase phase) {
  constexpr u32 most = Peers<kRanks>::most;
  constexpr u32 polls_between_flags = 16;
  u64 start_ns = 0;
  u32 seen = 0;  // of the flag of a missing peer, when it was asked last
  for (u32 poll = 1;; ++poll) {
    const bool ask = poll % polls_between_flags == 0;
    u32 missing = most;
#pragma unroll
    for (u32 k = 0; k < most; ++k) {
      if (!peers.has(k)) continue;
      const u32 flag = ask ? load_acquire_system(told.flags + peers.rank_of(k), told.wait) : 0;
      part[k] = load_relaxed_system(peers.from(k) + index);
      if (arrived(part[k]) || (ask && reached(flag, told.generation))) continue;
      missing = k;
      if (ask) seen = flag;
    }
    if (missing == most ||
        must_give_up(poll, start_ns, context, {phase, peers.rank_of(missing)}, told.generation, seen))
      return;
  }
}

}  // namespace arb::machine::detail

#include <machine/exchange.cuh>

namespace arb::machine {

using by_vector::exchange_beside_engines;
using by_vector::exchange_message;
using by_vector::gather_shares;
using by_vector::reduce_and_broadcast_share;
using by_vector::scatter_shares;
using by_vector::ShortExchange;
using by_vector::ShortHop;
using by_vector::ShortShares;

}  // namespace arb::machine
