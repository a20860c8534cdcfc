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

// Of a loop of stores to all peers: unrolled for any number of them it would keep too many addresses at hand.
template <u32 kRanks>
constexpr u32 stores_unroll = kRanks == 0 ? 1 : Peers<kRanks>::most;

// Stores one vector into this rank's area of every peer.
template <u32 kRanks>
ARB_DEVICE void push_to_all(const Peers<kRanks>& peers, u32 index, const Vector& vector) {
  [[maybe_unused]] constexpr u32 unroll = stores_unroll<kRanks>;
#pragma unroll unroll
  for (u32 k = 0; k < Peers<kRanks>::most; ++k)
    if (peers.has(k)) store_relaxed_system(peers.to(k) + index, vector);
}

// Puts the sentinel back where `part`, a vector of every peer, was, and adds them and `own` in member order. The sum can
// be sent on as it is: no sum is the sentinel, because arithmetic gives one NaN only, 0x7fffffff or twice 0x7fff (PTX
// ISA, add.f32 and cvt.rn).
template <class Element, u32 kRanks>
ARB_DEVICE Vector sum_arrived(const Vector& own, const Vector (&part)[Peers<kRanks>::most],
                              const Peers<kRanks>& peers, u32 index, Site refill) {
  constexpr u32 most = Peers<kRanks>::most;
  [[maybe_unused]] constexpr u32 unroll = stores_unroll<kRanks>;
#pragma unroll unroll
  for (u32 k = 0; k < most; ++k)
    if (peers.has(k)) refill_one(peers.from(k) + index, refill);
  Vector in_order[most + 1];
#pragma unroll
  for (u32 r = 0; r <= most; ++r) {
#pragma unroll
    for (u32 w = 0; w < 4; ++w) {
      if (kRanks == 0 && r >= peers.members) continue;
      const u32 before_own = part[r < most ? r : most - 1].word[w];
      const u32 after_own = part[r > 0 ? r - 1 : 0].word[w];
      in_order[r].word[w] = r < peers.member ? before_own : r == peers.member ? own.word[w] : after_own;
    }
  }
  return sum_of<Element, kRanks>(in_order, peers.members);
}

// Waits for one vector of every peer, puts the sentinel back and adds them and `own` in member order.
template <class Element, u32 kRanks>
ARB_DEVICE Vector receive_sum(const Vector& own, const Peers<kRanks>& peers, u32 index,
                              const WaitContext& context, Phase phase, Site refill) {
  Vector part[Peers<kRanks>::most];
  wait_all_arrived<kRanks>(part, peers, index, context, phase);
  return sum_arrived<Element, kRanks>(own, part, peers, index, refill);
}

// Vectors of a message, the last one perhaps partial: fewer than 2^32, or 64 GiB.
template <class Element>
ARB_DEVICE u32 vectors_of(u64 count_elements) {
  return static_cast<u32>((count_elements + elements_per_vector<Element>() - 1) /
                          elements_per_vector<Element>());
}

// Of the grid.
ARB_DEVICE u32 number_of_thread() {
  return block_index() * thread_count() + thread_index();
}

// Whether the message is `shares` equal ones of whole aligned vectors, of each of which a thread has one or none;
// one condition, without branches.
template <class Element>
ARB_DEVICE bool is_one_a_thread(const void* to, const void* from, u64 count_elements, u32 shares) {
  const u64 most_elements = u64{block_count() * thread_count()} * shares * elements_per_vector<Element>();
  return static_cast<bool>(static_cast<u32>(count_elements != 0) &
                           static_cast<u32>(count_elements <= most_elements) &
                           static_cast<u32>(count_elements % elements_per_vector<Element>() == 0) &
                           static_cast<u32>(vectors_of<Element>(count_elements) % shares == 0) &
                           static_cast<u32>(is_vector_aligned(from)) &
                           static_cast<u32>(is_vector_aligned(to)) & static_cast<u32>(goes_by_vector()));
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
// With two vectors or less for each thread, a thread pushes a vector and then waits for the same one (faster than
// in halves in a trial at 4 MiB on 2x H200, which is not among the results). With more, half the threads push and
// half receive, so that nobody's pushes wait for an arrival; unless in place, where only the thread that has pushed
// a vector may overwrite it, or in blocks of one thread, which has no half.
template <class Element, u32 kRanks, class MailOf>
ARB_DEVICE void exchange_message(void* to, const void* from, u64 count_elements, MailOf mail_of,
                                 const WaitContext& context, Phase phase, Site refill) {
  using namespace detail;
  const bool from_aligned = is_vector_aligned(from);
  const bool to_aligned = is_vector_aligned(to);
  const u32 vectors = vectors_of<Element>(count_elements);
  const u32 first = number_of_thread();
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

// One shot whose bulk copy engines bring to the areas as it is: vectors [part.begin, part.end) of a rank's message, if
// `by_engine`; told.flags[r] reaches told.generation once those of rank r are there. A word of them that is not the
// sentinel has arrived; one that is, is payload if the flag has been reached. What engines do not bring is pushed.
template <class Element, u32 kRanks>
ARB_DEVICE void exchange_beside_engines(void* to, const void* from, u64 count_elements, const Mailboxes& mail,
                                        EnginePart part, bool by_engine, const detail::Told& told,
                                        const WaitContext& context, Phase phase, Site refill) {
  using namespace detail;
  const bool from_aligned = is_vector_aligned(from);
  const bool to_aligned = is_vector_aligned(to);
  const u32 vectors = vectors_of<Element>(count_elements);
  const u32 first = number_of_thread();
  const u32 threads = block_count() * thread_count();
  const Peers<kRanks> peers(mail, 0);
  const auto push = [&](u32 i) {
    push_to_all<kRanks>(peers, i, as_payload(load_vector<Element>(from, count_elements, i, from_aligned)));
  };
  const u32 pushed = by_engine ? static_cast<u32>(part.begin) : vectors;
  for (u32 i = first; i < pushed; i += threads) push(i);
  if (by_engine && part.end < vectors && part.end % threads == first) push(static_cast<u32>(part.end));
  for (u32 i = first; i < vectors; i += threads) {
    const Vector own = as_payload(load_vector<Element>(from, count_elements, i, from_aligned));
    Vector theirs[Peers<kRanks>::most];
    if (i >= part.begin && i < part.end)
      wait_all_arrived_or_told<kRanks>(theirs, peers, i, told, context, phase);
    else
      wait_all_arrived<kRanks>(theirs, peers, i, context, phase);
    store_vector<Element>(to, count_elements, i, to_aligned,
                          sum_arrived<Element, kRanks>(own, theirs, peers, i, refill));
  }
}

// The way of short messages: of a message, or of each of its equal shares, every thread of the grid has one whole
// aligned vector or none. What follows is made before the wait for the previous kernel and touches no memory until
// load(), so that little more than two loads, of data and of the generation, lies between that wait and the first push.

// A thread's place among the areas of one hop.
template <class Element, u32 kRanks>
class ShortHop {
 public:
  // `mail` is that of slot 0, and slot 1 lies `slot_bytes` behind it.
  ARB_DEVICE ShortHop(const Mailboxes& mail, u64 slot_bytes)
      : peers_(mail, detail::number_of_thread()), slot_bytes_(computed(slot_bytes)) {
    peers_.settle();
  }
  ARB_DEVICE void open(u32 slot) { peers_.move(slot == 0 ? 0 : slot_bytes_); }
  // To the areas of another hop of the same team.
  ARB_DEVICE void move(u64 bytes) { peers_.move(bytes); }
  ARB_DEVICE const detail::Peers<kRanks>& peers() const { return peers_; }

  ARB_DEVICE void push(const detail::Vector& vector) const { detail::push_to_all<kRanks>(peers_, 0, vector); }
  // The peers' vectors and `own`, added in member order; the sentinel is put back.
  ARB_DEVICE detail::Vector receive(const detail::Vector& own, const WaitContext& context, Phase phase,
                                    Site refill) const {
    return detail::receive_sum<Element, kRanks>(own, peers_, 0, context, phase, refill);
  }

 private:
  detail::Peers<kRanks> peers_;
  u64 slot_bytes_;
};

// One shot, in this order: fits, load, push, receive.
template <class Element, u32 kRanks>
class ShortExchange {
 public:
  ARB_DEVICE ShortExchange(void* to, const void* from, u64 count_elements, const Mailboxes& mail,
                           u64 slot_bytes)
      : from_(computed(static_cast<const detail::Vector*>(from) + detail::number_of_thread())),
        to_(static_cast<detail::Vector*>(to) + detail::number_of_thread()),
        hop_(mail, slot_bytes),
        has_vector_(computed(detail::number_of_thread() < detail::vectors_of<Element>(count_elements))),
        fits_(computed(detail::is_one_a_thread<Element>(to, from, count_elements, 1))) {}

  // False: no such message, and nothing else but prefetch may be called.
  ARB_DEVICE bool fits() const { return fits_; }
  // Asks for this thread's vector to be brought near; allowed before the previous kernel has ended.
  ARB_DEVICE void prefetch() const {
    if (has_vector_) detail::prefetch(from_);
  }
  ARB_DEVICE void load() {
    if (has_vector_) own_ = detail::as_payload(detail::load_whole(from_));
  }
  ARB_DEVICE void push(u32 slot) {
    hop_.open(slot);
    if (has_vector_) hop_.push(own_);
  }
  ARB_DEVICE void receive(const WaitContext& context, Phase phase, Site refill) const {
    if (has_vector_) detail::store_whole(to_, hop_.receive(own_, context, phase, refill));
  }

 private:
  const detail::Vector* from_;
  detail::Vector* to_;
  ShortHop<Element, kRanks> hop_;
  bool has_vector_;
  bool fits_;
  detail::Vector own_;
};

// Two shots, in this order: fits, load, scatter, reduce, broadcast, gather. A thread's reads of a hop are all under
// way at the same time.
template <class Element, u32 kRanks>
class ShortShares {
 public:
  // `first` is the first hop's; the last hop's areas lie `hop_bytes` behind the first's.
  ARB_DEVICE ShortShares(void* to, const void* from, u64 count_elements, const Mailboxes& first,
                         u64 slot_bytes, u64 hop_bytes)
      : share_vectors_(detail::vectors_of<Element>(count_elements) / kRanks),
        from_(computed(static_cast<const detail::Vector*>(from) + detail::number_of_thread())),
        to_(static_cast<detail::Vector*>(to) + detail::number_of_thread()),
        hop_(first, slot_bytes),
        hop_bytes_(hop_bytes),
        has_vector_(computed(detail::number_of_thread() < share_vectors_)),
        fits_(computed(detail::is_one_a_thread<Element>(to, from, count_elements, kRanks))) {}

  // False: no such message, and nothing else may be called.
  ARB_DEVICE bool fits() const { return fits_; }
  // Of each share; where false, neither reduce nor broadcast may be called.
  ARB_DEVICE bool has_vector() const { return has_vector_; }
  ARB_DEVICE void load() {
    if (!has_vector_) return;
#pragma unroll
    for (u32 k = 0; k < most_peers; ++k)
      theirs_[k] = detail::load_whole(from_ + hop_.peers().target(k) * share_vectors_);
    own_ = detail::as_payload(detail::load_whole(from_ + hop_.peers().member * share_vectors_));
  }
  // Pushes every peer's share into this rank's area of that peer.
  ARB_DEVICE void scatter(u32 slot) {
    hop_.open(slot);
    if (!has_vector_) return;
#pragma unroll
    for (u32 k = 0; k < most_peers; ++k)
      detail::store_relaxed_system(hop_.peers().to(k), detail::as_payload(theirs_[k]));
  }
  // The team's sum of the own share.
  ARB_DEVICE detail::Vector reduce(const WaitContext& context, Phase phase, Site refill) const {
    return hop_.receive(own_, context, phase, refill);
  }
  // Pushes the result of the own share to all and writes it.
  ARB_DEVICE void broadcast(const detail::Vector& result) {
    hop_.move(hop_bytes_);
    hop_.push(result);
    detail::store_whole(to_ + hop_.peers().member * share_vectors_, result);
  }
  // Waits for the result of every peer's share, puts the sentinel back and writes it.
  ARB_DEVICE void gather(const WaitContext& context, Phase phase, Site refill) {
    if (!has_vector_) return;
    detail::wait_all_arrived<kRanks>(theirs_, hop_.peers(), 0, context, phase);
#pragma unroll
    for (u32 k = 0; k < most_peers; ++k) {
      detail::refill_one(hop_.peers().from(k), refill);
      detail::store_whole(to_ + hop_.peers().number(k) * share_vectors_, theirs_[k]);
    }
  }

 private:
  static_assert(kRanks != 0, "without a fixed number of members too much would have to be kept at hand");
  static constexpr u32 most_peers = detail::Peers<kRanks>::most;

  u32 share_vectors_;
  const detail::Vector* from_;  // of the first share
  detail::Vector* to_;
  ShortHop<Element, kRanks> hop_;
  u64 hop_bytes_;
  bool has_vector_;
  bool fits_;
  detail::Vector own_;
  detail::Vector theirs_[most_peers];
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
    for (u32 i = number_of_thread(); i < share.vectors; i += block_count() * thread_count())
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
  for (u32 i = number_of_thread(); i < share.vectors; i += block_count() * thread_count()) {
    const Vector own = as_payload(load_vector<Element>(from, count_elements, share.origin + i, from_aligned));
    const Vector sum = receive_sum<Element, kRanks>(own, from_peers, i, context, phase, refill);
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
    for (u32 i = number_of_thread(); i < share.vectors; i += block_count() * thread_count()) {
      const Vector vector = wait_arrived(area + i, context, {phase, mail.rank_of(peer)});
      refill_one(area + i, refill);
      store_vector<Element>(to, count_elements, share.origin + i, aligned, vector);
    }
  }
}

}  // namespace by_vector

}  // namespace arb::machine
