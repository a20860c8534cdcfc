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
