// Data that is its own flag: every 32-bit word of an area holds the sentinel until the writer's payload
// replaces it, and the reader puts the sentinel back. No fence, no flag, one one-way trip.
//
// What this rests on:
//   - a 4-byte word is written and read whole; vectors may arrive in any order and in pieces;
//   - the boundary between two kernels of a stream (or the wait for the previous kernel) orders all accesses
//   of the
//     first before all of the second for the whole system, as a system-scope fence by every thread would.
// The sentinel is a NaN in every dtype (two NaNs for 2-byte types), so a payload word that equals it can be
// rewritten to another NaN; any payload is allowed.
#pragma once

#include <arb/abi.h>

#include <machine/execution.cuh>
#include <machine/range.cuh>
#include <machine/types.cuh>
#include <machine/wait.cuh>

namespace arb::machine {

constexpr u32 sentinel = 0xffffffffu;

// Areas of one slot for a team of `members`; member k is rank first_rank + k * rank_step. What member w sends
// to member o lies in o's memory at base + rank(o) * owner_stride_bytes + w * area_bytes.
struct Mailboxes {
  char* base;
  u64 owner_stride_bytes;
  u64 area_bytes;
  u32 member;  // this rank's number in the team
  u32 members;
  u32 first_rank;
  u32 rank_step;

  ARB_DEVICE u32 rank_of(u32 other) const { return first_rank + other * rank_step; }
  ARB_DEVICE char* area(u32 owner, u32 writer) const {
    return base + rank_of(owner) * owner_stride_bytes + writer * area_bytes;
  }
};

// One team member's share of a message: this block's part of it, and the vector where the share begins. Areas
// that hold shares are indexed from there.
struct Share {
  VectorRange part;
  u64 origin;
};

namespace detail {

// A word as payload: never the sentinel.
ARB_DEVICE u32 as_payload(u32 word) {
  return word == sentinel ? 0x7fffffffu : word;
}

ARB_DEVICE Vector as_payload(Vector vector) {
#pragma unroll
  for (u32 w = 0; w < 4; ++w) vector.word[w] = as_payload(vector.word[w]);
  return vector;
}

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

// Vector `index` of a message whose address is aligned to the element only; elements past the end are zero.
template <class Element>
ARB_DEVICE Vector load_vector(const void* message, u64 count_elements, u64 index, bool aligned) {
  constexpr u32 per_vector = elements_per_vector<Element>();
  if (aligned && (index + 1) * per_vector <= count_elements)
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
  if (aligned && (index + 1) * per_vector <= count_elements) {
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

// Polls one vector of every peer's area until all have arrived; part[own] is left alone. Ends early when the
// deadline passes, as every wait does (wait.cuh).
template <u32 kRanks>
ARB_DEVICE void wait_all_arrived(Vector (&part)[kRanks == 0 ? max_ranks : kRanks], const Mailboxes& mail,
                                 u64 index, const WaitContext& context, Phase phase) {
  constexpr u32 most = kRanks == 0 ? max_ranks : kRanks;
  u64 start_ns = 0;
  for (u32 poll = 1;; ++poll) {
    u32 missing = most;
#pragma unroll
    for (u32 r = 0; r < most; ++r)
      if ((kRanks != 0 || r < mail.members) && r != mail.member)
        part[r] = load_relaxed_system(reinterpret_cast<const Vector*>(mail.area(mail.member, r)) + index);
#pragma unroll
    for (u32 r = 0; r < most; ++r)
      if ((kRanks != 0 || r < mail.members) && r != mail.member && !arrived(part[r])) missing = r;
    if (missing == most || must_give_up(poll, start_ns, context, {phase, mail.rank_of(missing)}, 0, sentinel))
      return;
  }
}

// Puts the sentinel back where every peer's vector was read.
template <u32 kRanks>
ARB_DEVICE void refill_vector(const Mailboxes& mail, u64 index, Site) {
  constexpr u32 most = kRanks == 0 ? max_ranks : kRanks;
  const Vector empty{{sentinel, sentinel, sentinel, sentinel}};
#pragma unroll
  for (u32 r = 0; r < most; ++r)
    if ((kRanks != 0 || r < mail.members) && r != mail.member)
      store_relaxed_system(reinterpret_cast<Vector*>(mail.area(mail.member, r)) + index, empty);
}

}  // namespace detail

// One shot: pushes from[range] into this rank's area of every peer, waits for every peer's, puts the sentinel
// back and writes the sum, in rank order in fp32, rounded once, to to[range]. A thread takes one vector at a
// time.
template <class Element, u32 kRanks>
ARB_DEVICE void exchange_range(void* to, const void* from, const Mailboxes& mail, u64 count_elements,
                               VectorRange range, const WaitContext& context, Phase phase, Site refill) {
  using namespace detail;
  constexpr u32 most = kRanks == 0 ? max_ranks : kRanks;
  const bool from_aligned = is_vector_aligned(from);
  const bool to_aligned = is_vector_aligned(to);
  for (u64 i = range.begin + thread_index(); i < range.end; i += thread_count()) {
    const Vector own = as_payload(load_vector<Element>(from, count_elements, i, from_aligned));
#pragma unroll
    for (u32 r = 0; r < most; ++r)
      if ((kRanks != 0 || r < mail.members) && r != mail.member)
        store_relaxed_system(reinterpret_cast<Vector*>(mail.area(r, mail.member)) + i, own);
    Vector part[most];
    wait_all_arrived<kRanks>(part, mail, i, context, phase);
    refill_vector<kRanks>(mail, i, refill);
#pragma unroll
    for (u32 r = 0; r < most; ++r)
      if (r == mail.member) part[r] = own;
    store_vector<Element>(to, count_elements, i, to_aligned, sum_of<Element, kRanks>(part, mail.members));
  }
}

// First hop of two: pushes every other member's share of `from` into this rank's area of that member.
template <class Element, u32 kRanks, class ShareOf>
ARB_DEVICE void scatter_shares(const void* from, const Mailboxes& mail, u64 count_elements,
                               ShareOf share_of) {
  using namespace detail;
  const u32 members = kRanks == 0 ? mail.members : kRanks;
  const bool aligned = is_vector_aligned(from);
  for (u32 step = 1; step < members; ++step) {
    const u32 peer = (mail.member + step) % members;
    const Share share = share_of(peer);
    Vector* const area = reinterpret_cast<Vector*>(mail.area(peer, mail.member));
    for (u64 i = share.part.begin + thread_index(); i < share.part.end; i += thread_count())
      store_relaxed_system(area + (i - share.origin),
                           as_payload(load_vector<Element>(from, count_elements, i, aligned)));
  }
}

// Middle hop: waits for every other member's vectors of `share` in `in`, adds the own from[share] in member
// order, writes the sum to to[share] and pushes it into this rank's area of every member of `out`. The same
// thread handles the same vector in calls that follow one another.
template <class Element, u32 kRanks>
ARB_DEVICE void reduce_and_broadcast_share(void* to, const void* from, const Mailboxes& in,
                                           const Mailboxes& out, u64 count_elements, Share share,
                                           const WaitContext& context, Phase phase, Site refill) {
  using namespace detail;
  constexpr u32 most = kRanks == 0 ? max_ranks : kRanks;
  const bool from_aligned = is_vector_aligned(from);
  const bool to_aligned = is_vector_aligned(to);
  for (u64 i = share.part.begin + thread_index(); i < share.part.end; i += thread_count()) {
    const Vector own = as_payload(load_vector<Element>(from, count_elements, i, from_aligned));
    Vector part[most];
    wait_all_arrived<kRanks>(part, in, i - share.origin, context, phase);
    refill_vector<kRanks>(in, i - share.origin, refill);
#pragma unroll
    for (u32 r = 0; r < most; ++r)
      if (r == in.member) part[r] = own;
    const Vector sum = as_payload(sum_of<Element, kRanks>(part, in.members));
#pragma unroll
    for (u32 r = 0; r < most; ++r)
      if ((kRanks != 0 || r < out.members) && r != out.member)
        store_relaxed_system(reinterpret_cast<Vector*>(out.area(r, out.member)) + (i - share.origin), sum);
    store_vector<Element>(to, count_elements, i, to_aligned, sum);
  }
}

// Last hop: waits for every other member's share in that member's area, puts the sentinel back and writes it
// to `to`.
template <class Element, u32 kRanks, class ShareOf>
ARB_DEVICE void gather_shares(void* to, const Mailboxes& mail, u64 count_elements, ShareOf share_of,
                              const WaitContext& context, Phase phase, Site refill) {
  using namespace detail;
  const u32 members = kRanks == 0 ? mail.members : kRanks;
  const bool aligned = is_vector_aligned(to);
  for (u32 step = 1; step < members; ++step) {
    const u32 peer = (mail.member + step) % members;
    const Share share = share_of(peer);
    Vector* const area = reinterpret_cast<Vector*>(mail.area(mail.member, peer));
    for (u64 i = share.part.begin + thread_index(); i < share.part.end; i += thread_count()) {
      const Vector vector = wait_arrived(area + (i - share.origin), context, {phase, mail.rank_of(peer)});
      refill_one(area + (i - share.origin), refill);
      store_vector<Element>(to, count_elements, i, aligned, vector);
    }
  }
}

}  // namespace arb::machine
