// Where a team's messages lie, and how a word of one is told from a word that has yet to come. Portable.
#pragma once

#include <arb/abi.h>

#include <machine/execution.cuh>
#include <machine/range.cuh>

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

// The other members of a team as this one sees them, in member order: peer k is member k, or k + 1 from this one's
// own number on.
template <u32 kRanks>
struct Peers {
  static constexpr u32 most = (kRanks == 0 ? max_ranks : kRanks) - 1;
  Vector* to[most];    // this rank's area in the peer's memory
  Vector* from[most];  // the peer's area in this rank's memory
  u32 member;
  u32 members;
  u32 first_rank;
  u32 rank_step;

  // Areas from vector `index` on.
  ARB_DEVICE Peers(const Mailboxes& mail, u32 index)
      : member(mail.member),
        members(kRanks == 0 ? mail.members : kRanks),
        first_rank(mail.first_rank),
        rank_step(mail.rank_step) {
#pragma unroll
    for (u32 k = 0; k < most; ++k) {
      if (!has(k)) continue;
      to[k] = reinterpret_cast<Vector*>(mail.area(number(k), member)) + index;
      from[k] = reinterpret_cast<Vector*>(mail.area(member, number(k))) + index;
    }
  }

  // To areas that lie `bytes` further on in every rank's memory.
  ARB_DEVICE void move(u64 bytes) {
#pragma unroll
    for (u32 k = 0; k < most; ++k) {
      if (!has(k)) continue;
      to[k] = reinterpret_cast<Vector*>(reinterpret_cast<char*>(to[k]) + bytes);
      from[k] = reinterpret_cast<Vector*>(reinterpret_cast<char*>(from[k]) + bytes);
    }
  }
  // Has all addresses computed by here.
  ARB_DEVICE void settle() {
#pragma unroll
    for (u32 k = 0; k < most; ++k) {
      if (!has(k)) continue;
      to[k] = computed(to[k]);
      from[k] = computed(from[k]);
    }
  }

  ARB_DEVICE bool has(u32 k) const {
    return kRanks != 0 || k + 1 < members;
  }
  ARB_DEVICE u32 number(u32 k) const {
    return k < member ? k : k + 1;
  }
  ARB_DEVICE u32 rank_of(u32 k) const {
    return first_rank + number(k) * rank_step;
  }
};

// A word as payload: never the sentinel.
ARB_DEVICE u32 as_payload(u32 word) {
  return word == sentinel ? 0x7fffffffu : word;
}

ARB_DEVICE Vector as_payload(Vector vector) {
#pragma unroll
  for (u32 w = 0; w < 4; ++w) vector.word[w] = as_payload(vector.word[w]);
  return vector;
}

}  // namespace detail

}  // namespace arb::machine
