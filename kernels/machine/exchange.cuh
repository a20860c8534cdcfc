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

// Stores one vector into this rank's area of every peer.
template <u32 kRanks>
ARB_DEVICE void push_to_all(const Peers<kRanks>& peers, u32 index, const Vector& vector) {
#pragma unroll
  for (u32 k = 0; k < Peers<kRanks>::most; ++k)
    if (peers.has(k)) store_relaxed_system(peers.to[k] + index, vector);
}

// Waits for one vector of every peer, puts the sentinel back and adds them and `own` in member order.
template <class Element, u32 kRanks>
ARB_DEVICE Vector receive_sum(const Vector& own, const Peers<kRanks>& peers, u32 index,
                              const WaitContext& context, Phase phase, Site refill) {
  constexpr u32 most = Peers<kRanks>::most;
  Vector part[most];
  wait_all_arrived<kRanks>(part, peers, index, context, phase);
#pragma unroll
  for (u32 k = 0; k < most; ++k)
    if (peers.has(k)) refill_one(peers.from[k] + index, refill);
  Vector in_order[most + 1];
#pragma unroll
  for (u32 r = 0; r <= most; ++r) {
#pragma unroll
    for (u32 w = 0; w < 4; ++w) {
      const u32 before_own = part[r < most ? r : most - 1].word[w];
      const u32 after_own = part[r > 0 ? r - 1 : 0].word[w];
      in_order[r].word[w] = r < peers.member ? before_own : r == peers.member ? own.word[w] : after_own;
    }
  }
  return sum_of<Element, kRanks>(in_order, peers.members);
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
  const Peers<kRanks> peers(mail_of(), 0);
  constexpr u32 most_alone = 2;
  if (vectors > most_alone * threads && to != from && thread_count() > 1) {
    const u32 half = thread_count() / 2;
    const u32 stride = block_count() * half;
    if (thread_index() < half) {
      for (u32 i = block_index() * half + thread_index(); i < vectors; i += stride)
        push_to_all<kRanks>(peers, i,
                            as_payload(load_vector<Element>(from, count_elements, i, from_aligned)));
    } else if (thread_index() < 2 * half) {
      for (u32 i = block_index() * half + thread_index() - half; i < vectors; i += stride) {
        own = as_payload(load_vector<Element>(from, count_elements, i, from_aligned));
        const Vector sum = receive_sum<Element, kRanks>(own, peers, i, context, phase, refill);
        store_vector<Element>(to, count_elements, i, to_aligned, sum);
      }
    }
    return;
  }
  for (u32 i = first; i < vectors; i += threads) {
    if (i != first) own = load_vector<Element>(from, count_elements, i, from_aligned);
    own = as_payload(own);
    push_to_all<kRanks>(peers, i, own);
    const Vector sum = receive_sum<Element, kRanks>(own, peers, i, context, phase, refill);
    store_vector<Element>(to, count_elements, i, to_aligned, sum);
  }
}

// One shot of a message of which every thread has one whole vector or none, and the fastest: made before the wait for
// the previous kernel, so that all that comes between that wait and the push is a load. In this order: fits, load, push,
// receive.
template <class Element, u32 kRanks>
class ShortExchange {
 public:
  // `mail` is that of slot 0, and slot 1 lies `slot_bytes` behind it. Touches no memory.
  ARB_DEVICE ShortExchange(void* to, const void* from, u64 count_elements, const Mailboxes& mail,
                           u64 slot_bytes)
      : from_(computed(static_cast<const detail::Vector*>(from) + number_of_thread())),
        to_(static_cast<detail::Vector*>(to) + number_of_thread()),
        peers_(mail, number_of_thread()),
        slot_bytes_(computed(slot_bytes)) {
    constexpr u32 per_vector = detail::elements_per_vector<Element>();
    const u64 vectors = count_elements / per_vector;
    has_vector_ = computed(number_of_thread() < vectors);
    // One condition without branches.
    fits_ = computed(static_cast<bool>(
        static_cast<u32>(count_elements != 0) & static_cast<u32>(count_elements % per_vector == 0) &
        static_cast<u32>(vectors <= block_count() * thread_count()) &
        static_cast<u32>(detail::is_vector_aligned(from)) & static_cast<u32>(detail::is_vector_aligned(to)) &
        static_cast<u32>(detail::goes_by_vector())));
#pragma unroll
    for (u32 k = 0; k < detail::Peers<kRanks>::most; ++k) {
      if (!peers_.has(k)) continue;
      peers_.to[k] = computed(peers_.to[k]);
      peers_.from[k] = computed(peers_.from[k]);
    }
  }

  // False: no such message, and nothing else may be called.
  ARB_DEVICE bool fits() const {
    return fits_;
  }
  // Asks for this thread's vector to be brought near; allowed before the previous kernel has ended.
  ARB_DEVICE void prefetch() const {
    if (has_vector_) detail::prefetch(from_);
  }
  ARB_DEVICE void load() {
    if (has_vector_) own_ = detail::as_payload(detail::load_whole(from_));
  }
  ARB_DEVICE void push(u32 slot) {
    const u64 offset_bytes = slot == 0 ? 0 : slot_bytes_;
#pragma unroll
    for (u32 k = 0; k < detail::Peers<kRanks>::most; ++k) {
      if (!peers_.has(k)) continue;
      peers_.to[k] = behind(peers_.to[k], offset_bytes);
      peers_.from[k] = behind(peers_.from[k], offset_bytes);
    }
    if (has_vector_) detail::push_to_all<kRanks>(peers_, 0, own_);
  }
  // Waits for the peers' vectors, puts the sentinel back and writes the sum.
  ARB_DEVICE void receive(const WaitContext& context, Phase phase, Site refill) const {
    if (has_vector_)
      detail::store_whole(to_, detail::receive_sum<Element, kRanks>(own_, peers_, 0, context, phase, refill));
  }

 private:
  ARB_DEVICE static u32 number_of_thread() {
    return block_index() * thread_count() + thread_index();
  }
  ARB_DEVICE static detail::Vector* behind(detail::Vector* area, u64 bytes) {
    return reinterpret_cast<detail::Vector*>(reinterpret_cast<char*>(area) + bytes);
  }

  const detail::Vector* from_;
  detail::Vector* to_;
  detail::Peers<kRanks> peers_;
  u64 slot_bytes_;
  bool has_vector_;
  bool fits_;
  detail::Vector own_;
};

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
  const Peers<kRanks> from_peers(in, 0);
  const Peers<kRanks> to_peers(out, 0);
  for (u32 i = block_index() * thread_count() + thread_index(); i < share.vectors;
       i += block_count() * thread_count()) {
    const Vector own = as_payload(load_vector<Element>(from, count_elements, share.origin + i, from_aligned));
    const Vector sum = as_payload(receive_sum<Element, kRanks>(own, from_peers, i, context, phase, refill));
    push_to_all<kRanks>(to_peers, i, sum);
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
