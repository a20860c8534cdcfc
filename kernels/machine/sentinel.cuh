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

// Polls one vector of every peer's area until all have arrived; part[own] is left alone. Ends early when the
// deadline passes, as every wait does (wait.cuh).
template <u32 kRanks>
ARB_DEVICE void wait_all_arrived(Vector (&part)[kRanks == 0 ? max_ranks : kRanks], const Mailboxes& mail,
                                 u32 index, const WaitContext& context, Phase phase) {
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

// Stores one vector into this rank's area of every other member.
template <u32 kRanks>
ARB_DEVICE void push_to_all(const Mailboxes& mail, u32 index, const Vector& vector) {
  constexpr u32 most = kRanks == 0 ? max_ranks : kRanks;
#pragma unroll
  for (u32 r = 0; r < most; ++r)
    if ((kRanks != 0 || r < mail.members) && r != mail.member)
      store_relaxed_system(reinterpret_cast<Vector*>(mail.area(r, mail.member)) + index, vector);
}

// Waits for one vector of every other member, puts the sentinel back and adds them and `own` in member order.
template <class Element, u32 kRanks>
ARB_DEVICE Vector receive_sum(const Vector& own, const Mailboxes& mail, u32 index, const WaitContext& context,
                              Phase phase, Site refill) {
  constexpr u32 most = kRanks == 0 ? max_ranks : kRanks;
  Vector part[most];
  wait_all_arrived<kRanks>(part, mail, index, context, phase);
#pragma unroll
  for (u32 r = 0; r < most; ++r)
    if ((kRanks != 0 || r < mail.members) && r != mail.member)
      refill_one(reinterpret_cast<Vector*>(mail.area(mail.member, r)) + index, refill);
#pragma unroll
  for (u32 r = 0; r < most; ++r)
#pragma unroll
    for (u32 w = 0; w < 4; ++w) part[r].word[w] = r == mail.member ? own.word[w] : part[r].word[w];
  return sum_of<Element, kRanks>(part, mail.members);
}

// Vectors of a message, the last one perhaps partial: fewer than 2^32, or 64 GiB.
template <class Element>
ARB_DEVICE u32 vectors_of(u64 count_elements) {
  return static_cast<u32>((count_elements + elements_per_vector<Element>() - 1) /
                          elements_per_vector<Element>());
}

// Share `number` of `shares` equal ones (they differ by one vector at most).
struct Share {
  u32 origin;
  u32 vectors;
};
ARB_DEVICE Share share_of(u32 vectors, u32 shares, u32 number) {
  const u32 begin = static_cast<u32>(u64{vectors} * number / shares);
  const u32 end = static_cast<u32>(u64{vectors} * (number + 1) / shares);
  return {begin, end - begin};
}

}  // namespace detail

// One shot: pushes `from` into this rank's area of every other member, waits for theirs, puts the sentinel
// back and writes the sum, in member order in fp32, rounded once, to `to`. All threads of the grid share the
// message. `mail_of` is called once a thread, after its first read of `from`, so that reads that it needs
// overlap that one.
//
// With a vector or less for each thread, a thread pushes a vector and then waits for the same one. With more,
// half the threads push and half receive, so that nobody's pushes wait for an arrival; unless in place, where
// only the thread that has pushed a vector may overwrite it.
template <class Element, u32 kRanks, class MailOf>
ARB_DEVICE void exchange_message(void* to, const void* from, u64 count_elements, MailOf mail_of,
                                 const WaitContext& context, Phase phase, Site refill) {
  using namespace detail;
  const bool from_aligned = is_vector_aligned(from);
  const bool to_aligned = is_vector_aligned(to);
  const u32 vectors = vectors_of<Element>(count_elements);
  const u32 first = block_index() * thread_count() + thread_index();
  const u32 threads = block_count() * thread_count();
  Vector own{};
  if (first < vectors) own = load_vector<Element>(from, count_elements, first, from_aligned);
  const Mailboxes mail = mail_of();
  if (vectors > threads && to != from) {
    const u32 half = thread_count() / 2;
    const u32 stride = block_count() * half;
    if (thread_index() < half) {
      for (u32 i = block_index() * half + thread_index(); i < vectors; i += stride)
        push_to_all<kRanks>(mail, i, as_payload(load_vector<Element>(from, count_elements, i, from_aligned)));
    } else if (thread_index() < 2 * half) {
      for (u32 i = block_index() * half + thread_index() - half; i < vectors; i += stride) {
        own = as_payload(load_vector<Element>(from, count_elements, i, from_aligned));
        const Vector sum = receive_sum<Element, kRanks>(own, mail, i, context, phase, refill);
        store_vector<Element>(to, count_elements, i, to_aligned, sum);
      }
    }
    return;
  }
  for (u32 i = first; i < vectors; i += threads) {
    if (i != first) own = load_vector<Element>(from, count_elements, i, from_aligned);
    own = as_payload(own);
    push_to_all<kRanks>(mail, i, own);
    const Vector sum = receive_sum<Element, kRanks>(own, mail, i, context, phase, refill);
    store_vector<Element>(to, count_elements, i, to_aligned, sum);
  }
}

// First hop of two: pushes every other member's share of `from` into this rank's area of that member.
template <class Element, u32 kRanks>
ARB_DEVICE void scatter_shares(const void* from, u64 count_elements, const Mailboxes& mail) {
  using namespace detail;
  const u32 members = kRanks == 0 ? mail.members : kRanks;
  const bool aligned = is_vector_aligned(from);
  const u32 vectors = vectors_of<Element>(count_elements);
  for (u32 step = 1; step < members; ++step) {
    const u32 peer = (mail.member + step) % members;
    const Share share = share_of(vectors, members, peer);
    Vector* const area = reinterpret_cast<Vector*>(mail.area(peer, mail.member));
    for (u32 i = block_index() * thread_count() + thread_index(); i < share.vectors;
         i += block_count() * thread_count())
      store_relaxed_system(area + i,
                           as_payload(load_vector<Element>(from, count_elements, share.origin + i, aligned)));
  }
}

// Middle hop: waits for the own share from every other member of `in`, adds the own part of `from` in member
// order, writes the sum to `to` and pushes it into this rank's area of every other member of `out`. `share`
// of `shares` says which part of the message that is. The same thread handles the same vector in all hops.
template <class Element, u32 kRanks>
ARB_DEVICE void reduce_and_broadcast_share(void* to, const void* from, u64 count_elements, u32 share_number,
                                           u32 shares, const Mailboxes& in, const Mailboxes& out,
                                           const WaitContext& context, Phase phase, Site refill) {
  using namespace detail;
  const bool from_aligned = is_vector_aligned(from);
  const bool to_aligned = is_vector_aligned(to);
  const Share share = share_of(vectors_of<Element>(count_elements), shares, share_number);
  for (u32 i = block_index() * thread_count() + thread_index(); i < share.vectors;
       i += block_count() * thread_count()) {
    const Vector own = as_payload(load_vector<Element>(from, count_elements, share.origin + i, from_aligned));
    const Vector sum = as_payload(receive_sum<Element, kRanks>(own, in, i, context, phase, refill));
    push_to_all<kRanks>(out, i, sum);
    store_vector<Element>(to, count_elements, share.origin + i, to_aligned, sum);
  }
}

// Last hop: waits for every other member's share in that member's area, puts the sentinel back and writes it
// to `to`.
template <class Element, u32 kRanks>
ARB_DEVICE void gather_shares(void* to, u64 count_elements, const Mailboxes& mail, const WaitContext& context,
                              Phase phase, Site refill) {
  using namespace detail;
  const u32 members = kRanks == 0 ? mail.members : kRanks;
  const bool aligned = is_vector_aligned(to);
  const u32 vectors = vectors_of<Element>(count_elements);
  for (u32 step = 1; step < members; ++step) {
    const u32 peer = (mail.member + step) % members;
    const Share share = share_of(vectors, members, peer);
    Vector* const area = reinterpret_cast<Vector*>(mail.area(mail.member, peer));
    for (u32 i = block_index() * thread_count() + thread_index(); i < share.vectors;
         i += block_count() * thread_count()) {
      const Vector vector = wait_arrived(area + i, context, {phase, mail.rank_of(peer)});
      refill_one(area + i, refill);
      store_vector<Element>(to, count_elements, share.origin + i, aligned, vector);
    }
  }
}

}  // namespace arb::machine
