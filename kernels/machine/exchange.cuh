// Hops of a protocol whose data carries its own arrival: who sends, awaits and refills which vector.
// Portable, so that the emulated machine proves these very lines; <machine/sentinel.cuh> includes this file,
// brings the functions into arb::machine and says what they rest on.
#pragma once

#include <arb/abi.h>

#include <machine/execution.cuh>
#include <machine/mailboxes.cuh>
#include <machine/range.cuh>
#include <machine/types.cuh>
#include <machine/wait.cuh>

namespace arb::machine {

namespace detail {

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

namespace by_vector {

// One shot: pushes `from` into this rank's area of every other member, waits for theirs, puts the sentinel
// back and writes the sum, in member order in fp32, rounded once, to `to`. All threads of the grid share the
// message. `mail_of` is called once a thread, after its first read of `from`, so that reads that it needs
// overlap that one.
//
// With two vectors or less for each thread, a thread pushes a vector and then waits for the same one (faster than in
// halves in a trial at 4 MiB on 2x H200, which is not among the results). With more, half the threads push and half receive, so that nobody's pushes wait
// for an arrival; unless in place, where only the thread that has pushed a vector may overwrite it, or in blocks of
// one thread, which has no half.
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
  constexpr u32 most_alone = 2;
  if (vectors > most_alone * threads && to != from && thread_count() > 1) {
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

// First hop of two: pushes every other member's share of `from` into this rank's area of that member. With
// `shares` 1 instead of as many as members, everyone gets the whole message.
template <class Element, u32 kRanks>
ARB_DEVICE void scatter_shares(const void* from, u64 count_elements, u32 shares, const Mailboxes& mail) {
  using namespace detail;
  const u32 members = kRanks == 0 ? mail.members : kRanks;
  const bool aligned = is_vector_aligned(from);
  const u32 vectors = vectors_of<Element>(count_elements);
  for (u32 step = 1; step < members; ++step) {
    const u32 peer = (mail.member + step) % members;
    const Share share = share_of(vectors, shares, shares == 1 ? 0 : peer);
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

}  // namespace by_vector

}  // namespace arb::machine
