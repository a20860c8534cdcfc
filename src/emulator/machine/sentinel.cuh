// Data that is its own flag: the emulated twin of kernels/machine/sentinel.cuh, which says what it rests on.
// In proof a vector is four words, each stored and polled by itself, and the hops are the very lines of
// kernels/machine/exchange.cuh; in counting a block pushes its part of a message whole and waits for a whole
// part.
#pragma once

#include <arb/abi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <machine/execution.cuh>
#include <machine/mailboxes.cuh>
#include <machine/memory.cuh>
#include <machine/range.cuh>
#include <machine/types.cuh>
#include <machine/wait.cuh>
#include <vector>

namespace arb::machine::detail {

inline void store_relaxed_system(Vector* address, const Vector& vector) {
  u32* to = reinterpret_cast<u32*>(address);
  for (u32 w = 0; w < 4; ++w) engine().store(to + w, sizeof(u32), vector.word[w], relaxed_system, nullptr);
}

inline void prefetch(const Vector*) {}

inline Vector load_whole(const Vector* address) {
  Vector vector;
  for (u32 w = 0; w < 4; ++w) vector.word[w] = load_weak(address, w * sizeof(u32), sizeof(u32));
  return vector;
}

inline void store_whole(Vector* address, const Vector& vector) {
  for (u32 w = 0; w < 4; ++w) store_weak(address, w * sizeof(u32), sizeof(u32), vector.word[w]);
}

// In counting messages are moved whole.
inline bool goes_by_vector() {
  return !engine().ranges_are_whole();
}

// Vector `index` of a message whose address is aligned to the element only; elements past the end are zero.
template <class Element>
Vector load_vector(const void* message, u64 count_elements, u64 index, bool aligned) {
  constexpr u32 per_vector = elements_per_vector<Element>();
  Vector vector{};
  if (aligned && (index + 1) * per_vector <= count_elements) {
    for (u32 w = 0; w < 4; ++w)
      vector.word[w] = load_weak(message, index * vector_bytes + w * sizeof(u32), sizeof(u32));
    return vector;
  }
  for (u32 e = 0; e < per_vector; ++e) {
    const u64 i = index * per_vector + e;
    if (i < count_elements)
      vector.word[e * Element::bytes / 4] |= load_element<Element>(message, i)
                                             << (e * Element::bytes % 4 * 8);
  }
  return vector;
}

template <class Element>
void store_vector(void* message, u64 count_elements, u64 index, bool aligned, const Vector& vector) {
  constexpr u32 per_vector = elements_per_vector<Element>();
  if (aligned && (index + 1) * per_vector <= count_elements) {
    for (u32 w = 0; w < 4; ++w)
      store_weak(message, index * vector_bytes + w * sizeof(u32), sizeof(u32), vector.word[w]);
    return;
  }
  for (u32 e = 0; e < per_vector; ++e) {
    const u64 i = index * per_vector + e;
    if (i < count_elements)
      store_element<Element>(message, i, vector.word[e * Element::bytes / 4] >> (e * Element::bytes % 4 * 8));
  }
}

// Waits for one vector word by word: each is polled until it is there, and coherence keeps it there.
inline Vector wait_arrived(const Vector* address, const WaitContext&, Reason reason) {
  const u32* from = reinterpret_cast<const u32*>(address);
  Vector vector;
  for (u32 w = 0; w < 4; ++w)
    vector.word[w] = engine().wait_arrived(from + w, sentinel, relaxed_system, reason.phase, reason.peer);
  return vector;
}

inline void refill_one(Vector* address, Site site) {
  u32* to = reinterpret_cast<u32*>(address);
  for (u32 w = 0; w < 4; ++w) engine().refill(to + w, sentinel, relaxed_system, site.label);
}

// Waits for vector `index` of every peer.
template <u32 kRanks>
void wait_all_arrived(Vector (&part)[Peers<kRanks>::most], const Peers<kRanks>& peers, u32 index,
                      const WaitContext& context, Phase phase) {
  for (u32 k = 0; k < Peers<kRanks>::most; ++k)
    if (peers.has(k)) part[k] = wait_arrived(peers.from(k) + index, context, {phase, peers.rank_of(k)});
}

// The same where copy engines bring vectors as they are: whatever a word holds once its peer's flag has told of the end
// of the copies has arrived.
template <u32 kRanks>
void wait_all_arrived_or_told(Vector (&part)[Peers<kRanks>::most], const Peers<kRanks>& peers, u32 index,
                              const Told& told, const WaitContext&, Phase phase) {
  for (u32 k = 0; k < Peers<kRanks>::most; ++k) {
    if (!peers.has(k)) continue;
    const u32* from = reinterpret_cast<const u32*>(peers.from(k) + index);
    for (u32 w = 0; w < 4; ++w)
      part[k].word[w] = engine().wait_arrived_or_told(
          from + w, sentinel, relaxed_system, told.flags + peers.rank_of(k), told.generation, acquire_system,
          phase, peers.rank_of(k), told.wait.label);
  }
}

}  // namespace arb::machine::detail

#include <machine/exchange.cuh>

namespace arb::machine {

using by_vector::ShortExchange;
using by_vector::ShortHop;
using by_vector::ShortShares;

namespace whole {

using Words = std::vector<u32>;

// This block's part of a share.
inline detail::Share part_of_share(detail::Share share) {
  const detail::Share part = detail::share_of(share.vectors, block_count(), block_index());
  return {part.origin, part.vectors};
}

inline u64 bytes_of(const Words& words) {
  return words.size() * sizeof(u32);
}

// Vectors [begin, begin + vectors) of a message as payload, the last one filled up with zeros.
template <class Element>
Words load(const void* message, u64 count_elements, u64 begin, u64 vectors) {
  Words words(vectors * vector_bytes / sizeof(u32));
  const detail::ByteRange bytes = detail::bytes_of<Element>(count_elements, {begin, begin + vectors});
  if (bytes.begin == bytes.end) return words;
  std::memcpy(words.data(), detail::whole_source_at(message, bytes), bytes.end - bytes.begin);
  for (u32& word : words) word = detail::as_payload(word);
  return words;
}

template <class Element>
void store(void* message, u64 count_elements, u64 begin, const Words& words) {
  const detail::ByteRange bytes =
      detail::bytes_of<Element>(count_elements, {begin, begin + bytes_of(words) / vector_bytes});
  if (bytes.begin == bytes.end) return;
  std::memcpy(detail::whole_target_at(message, bytes), words.data(), bytes.end - bytes.begin);
}

inline void push(const Mailboxes& mail, u32 to, u64 begin, const Words& words) {
  if (words.empty() || to == mail.member) return;
  char* const area = mail.area(to, mail.member) + begin * vector_bytes;
  std::memcpy(detail::engine().whole_target(area, bytes_of(words)), words.data(), bytes_of(words));
}

// What `writer` has sent, once all of it is there, or as it is where a flag has told so; the sentinel is put back.
inline Words receive(const Mailboxes& mail, u32 writer, u64 begin, u64 vectors, Phase phase,
                     bool told = false) {
  Words words(vectors * vector_bytes / sizeof(u32));
  if (words.empty()) return words;
  char* const area = mail.area(mail.member, writer) + begin * vector_bytes;
  if (!told)
    detail::engine().wait_whole_arrived(area, bytes_of(words), sentinel, phase, mail.rank_of(writer));
  std::memcpy(words.data(), area, bytes_of(words));
  std::memset(detail::engine().whole_target(area, bytes_of(words)), 0xff, bytes_of(words));
  return words;
}

template <class Element>
Words receive_sum(const Words& own, const Mailboxes& mail, u64 begin, Phase phase, bool told = false) {
  std::array<Words, max_ranks> part;
  std::array<const char*, max_ranks> source{};
  for (u32 r = 0; r < mail.members; ++r) {
    part[r] = r == mail.member ? own : receive(mail, r, begin, bytes_of(own) / vector_bytes, phase, told);
    source[r] = reinterpret_cast<const char*>(part[r].data());
  }
  Words sum(own.size());
  detail::sum_whole<Element>({reinterpret_cast<char*>(sum.data())}, 1, source, mail.members, bytes_of(own));
  return sum;
}

}  // namespace whole

// One shot: pushes `from` into this rank's area of every other member, waits for theirs, puts the sentinel
// back and writes the sum, in member order in fp32, rounded once, to `to`.
template <class Element, u32 kRanks, class MailOf>
void exchange_message(void* to, const void* from, u64 count_elements, MailOf mail_of,
                      const WaitContext& context, Phase phase, Site refill) {
  if (!detail::engine().ranges_are_whole()) {
    by_vector::exchange_message<Element, kRanks>(to, from, count_elements, mail_of, context, phase, refill);
    return;
  }
  const Mailboxes mail = mail_of();
  const detail::Share part = whole::part_of_share({0, detail::vectors_of<Element>(count_elements)});
  const whole::Words own = whole::load<Element>(from, count_elements, part.origin, part.vectors);
  for (u32 r = 0; r < mail.members; ++r) whole::push(mail, r, part.origin, own);
  whole::store<Element>(to, count_elements, part.origin,
                        whole::receive_sum<Element>(own, mail, part.origin, phase));
}

// One shot whose bulk copy engines bring; see by_vector::exchange_beside_engines. In counting every rank's message goes
// the way of the own one.
template <class Element, u32 kRanks>
void exchange_beside_engines(void* to, const void* from, u64 count_elements, const Mailboxes& mail,
                             EnginePart part, bool by_engine, const detail::Told& told,
                             const WaitContext& context, Phase phase, Site refill) {
  if (!detail::engine().ranges_are_whole()) {
    by_vector::exchange_beside_engines<Element, kRanks>(to, from, count_elements, mail, part, by_engine, told,
                                                        context, phase, refill);
    return;
  }
  const detail::Share mine = whole::part_of_share({0, detail::vectors_of<Element>(count_elements)});
  const u64 last = u64{mine.origin} + mine.vectors;
  const auto in_mine = [&](u64 at) { return std::clamp<u64>(at, mine.origin, last); };
  const u64 begin = by_engine ? in_mine(part.begin) : last;
  const u64 end = by_engine ? in_mine(part.end) : last;
  const std::array<detail::Share, 2> pushed{
      detail::Share{mine.origin, static_cast<u32>(begin - mine.origin)},
      detail::Share{static_cast<u32>(end), static_cast<u32>(last - end)}};
  for (const detail::Share& share : pushed) {
    const whole::Words own = whole::load<Element>(from, count_elements, share.origin, share.vectors);
    for (u32 r = 0; r < mail.members; ++r) whole::push(mail, r, share.origin, own);
  }
  for (const detail::Share& share : pushed) {
    const whole::Words own = whole::load<Element>(from, count_elements, share.origin, share.vectors);
    whole::store<Element>(to, count_elements, share.origin,
                          whole::receive_sum<Element>(own, mail, share.origin, phase));
  }
  if (begin == end) return;
  for (u32 r = 0; r < mail.members; ++r)
    if (r != mail.member)
      wait_reached_acquire_system(told.flags + mail.rank_of(r), told.generation, context,
                                  {phase, mail.rank_of(r)}, told.wait);
  const whole::Words own = whole::load<Element>(from, count_elements, begin, end - begin);
  whole::store<Element>(to, count_elements, begin,
                        whole::receive_sum<Element>(own, mail, begin, phase, true));
}

// First hop of two: pushes every other member's share of `from` into this rank's area of that member. With
// `shares` 1 instead of as many as members, everyone gets the whole message.
template <class Element, u32 kRanks>
void scatter_shares(const void* from, u64 count_elements, u32 shares, const Mailboxes& mail) {
  if (!detail::engine().ranges_are_whole()) {
    by_vector::scatter_shares<Element, kRanks>(from, count_elements, shares, mail);
    return;
  }
  for (u32 step = 1; step < mail.members; ++step) {
    const u32 peer = (mail.member + step) % mail.members;
    const detail::Share share =
        detail::share_of(detail::vectors_of<Element>(count_elements), shares, shares == 1 ? 0 : peer);
    const detail::Share part = whole::part_of_share(share);
    whole::push(mail, peer, part.origin,
                whole::load<Element>(from, count_elements, share.origin + part.origin, part.vectors));
  }
}

// Middle hop: waits for the own share from every other member of `in`, adds the own part of `from` in member
// order, writes the sum to `to` and pushes it into this rank's area of every other member of `out`.
template <class Element, u32 kRanks>
void reduce_and_broadcast_share(void* to, const void* from, u64 count_elements, u32 share_number, u32 shares,
                                const Mailboxes& in, const Mailboxes& out, const WaitContext& context,
                                Phase phase, Site refill) {
  if (!detail::engine().ranges_are_whole()) {
    by_vector::reduce_and_broadcast_share<Element, kRanks>(to, from, count_elements, share_number, shares, in,
                                                           out, context, phase, refill);
    return;
  }
  const detail::Share share =
      detail::share_of(detail::vectors_of<Element>(count_elements), shares, share_number);
  const detail::Share part = whole::part_of_share(share);
  const whole::Words own =
      whole::load<Element>(from, count_elements, share.origin + part.origin, part.vectors);
  whole::Words sum = whole::receive_sum<Element>(own, in, part.origin, phase);
  for (u32& word : sum) word = detail::as_payload(word);
  for (u32 r = 0; r < out.members; ++r) whole::push(out, r, part.origin, sum);
  whole::store<Element>(to, count_elements, share.origin + part.origin, sum);
}

// Last hop: waits for every other member's share in that member's area, puts the sentinel back and writes it
// to `to`.
template <class Element, u32 kRanks>
void gather_shares(void* to, u64 count_elements, const Mailboxes& mail, const WaitContext& context,
                   Phase phase, Site refill) {
  if (!detail::engine().ranges_are_whole()) {
    by_vector::gather_shares<Element, kRanks>(to, count_elements, mail, context, phase, refill);
    return;
  }
  for (u32 step = 1; step < mail.members; ++step) {
    const u32 peer = (mail.member + step) % mail.members;
    const detail::Share share =
        detail::share_of(detail::vectors_of<Element>(count_elements), mail.members, peer);
    const detail::Share part = whole::part_of_share(share);
    whole::store<Element>(to, count_elements, share.origin + part.origin,
                          whole::receive(mail, peer, part.origin, part.vectors, phase));
  }
}

}  // namespace arb::machine
