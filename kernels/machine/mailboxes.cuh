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

// The other members of a team as this one counts them. Those that it reads from come in member order: number(k) is k,
// or k + 1 from its own number on. Those that it writes to begin with the next one: members that all wrote to the
// same one first would share its link.
struct PeerNumbers {
  u32 member;
  u32 members;
  u32 first_rank;
  u32 rank_step;

  ARB_DEVICE u32 number(u32 k) const { return k < member ? k : k + 1; }
  ARB_DEVICE u32 target(u32 k) const {
    const u32 next = member + 1 + k;
    return next < members ? next : next - members;
  }
  ARB_DEVICE u32 rank_of(u32 k) const { return first_rank + number(k) * rank_step; }
};

// Their areas from a vector on: to(k) is this rank's in the memory of member target(k), from(k) that of member
// number(k) in this rank's. With a fixed number of members all addresses are at hand.
template <u32 kRanks>
struct Peers : PeerNumbers {
  static constexpr u32 most = kRanks - 1;

  ARB_DEVICE Peers(const Mailboxes& mail, u32 index)
      : PeerNumbers{mail.member, kRanks, mail.first_rank, mail.rank_step} {
#pragma unroll
    for (u32 k = 0; k < most; ++k) {
      to_[k] = reinterpret_cast<Vector*>(mail.area(target(k), member)) + index;
      from_[k] = reinterpret_cast<Vector*>(mail.area(member, number(k))) + index;
    }
  }

  ARB_DEVICE bool has(u32) const {
    return true;
  }
  ARB_DEVICE Vector* to(u32 k) const {
    return to_[k];
  }
  ARB_DEVICE Vector* from(u32 k) const {
    return from_[k];
  }
  // To areas that lie `bytes` further on in every rank's memory.
  ARB_DEVICE void move(u64 bytes) {
#pragma unroll
    for (u32 k = 0; k < most; ++k) {
      to_[k] = reinterpret_cast<Vector*>(reinterpret_cast<char*>(to_[k]) + bytes);
      from_[k] = reinterpret_cast<Vector*>(reinterpret_cast<char*>(from_[k]) + bytes);
    }
  }
  // Has all addresses computed by here.
  ARB_DEVICE void settle() {
#pragma unroll
    for (u32 k = 0; k < most; ++k) {
      to_[k] = computed(to_[k]);
      from_[k] = computed(from_[k]);
    }
  }

 private:
  Vector* to_[most];
  Vector* from_[most];
};

// Any number of members: so many addresses would not fit into registers.
template <>
struct Peers<0> : PeerNumbers {
  static constexpr u32 most = max_ranks - 1;

  ARB_DEVICE Peers(const Mailboxes& mail, u32 index)
      : PeerNumbers{mail.member, mail.members, mail.first_rank, mail.rank_step}, mail_(mail), index_(index) {}

  ARB_DEVICE bool has(u32 k) const { return k + 1 < members; }
  ARB_DEVICE Vector* to(u32 k) const {
    return reinterpret_cast<Vector*>(mail_.area(target(k), member)) + index_;
  }
  ARB_DEVICE Vector* from(u32 k) const {
    return reinterpret_cast<Vector*>(mail_.area(member, number(k))) + index_;
  }
  ARB_DEVICE void move(u64 bytes) { mail_.base += bytes; }
  ARB_DEVICE void settle() {}

 private:
  Mailboxes mail_;
  u32 index_;
};

// How the end of engine copies is told: flags[r] reaches `generation` when those of rank r have ended.
struct Told {
  const u32* flags;
  u32 generation;
  Site wait;
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
