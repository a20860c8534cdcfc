// What allreduce protocols share: generations, slots, flags and partitions. Portable: only machine calls.
#pragma once

#include <arb/abi.h>

#include <machine/execution.cuh>
#include <machine/memory.cuh>
#include <machine/range.cuh>
#include <machine/sentinel.cuh>
#include <machine/types.cuh>
#include <machine/wait.cuh>

namespace arb::machine {

// The number of this call, from 1, the same in all blocks and on all ranks. It lives in device memory so that
// a graph replays; it stands still until every block of the call has called finish_call.
ARB_DEVICE u32 current_generation(const KernelParams& params) {
  return static_cast<u32>(load_relaxed_device(&params.local->call_ticks) / ticks_per_call) + 1;
}

// The blocks of a call add ticks_per_call together, so the generation steps once a call at any grid size: one tick
// each, and the first block all the others. All threads of the block must have read the generation (a block barrier
// lies between).
ARB_DEVICE void finish_call(const KernelParams& params, Site site) {
  if (thread_index() != 0) return;
  const u32 ticks = block_index() == 0 ? static_cast<u32>(ticks_per_call) - (block_count() - 1) : 1;
  add_relaxed_device(&params.local->call_ticks, ticks, site);
}

// The number of the first step of this call, counted over all calls of a kernel whose flags carry several steps a
// call; the same in all blocks and on all ranks. A flag that its block does not touch for 2^31 steps seems to be ahead.
ARB_DEVICE u32 first_step(const KernelParams& params, u32 generation) {
  return static_cast<u32>(load_relaxed_device(&params.local->steps[generation % 2])) + 1;
}

// Says how many steps this call has, at any time after the wait for the previous kernel; the first block does it. What
// the next call reads is not what this one does.
ARB_DEVICE void count_steps(const KernelParams& params, u32 generation, u32 steps, Site site) {
  if (thread_index() != 0 || block_index() != 0) return;
  const u64 before = load_relaxed_device(&params.local->steps[generation % 2]);
  u64* const of_next = &params.local->steps[(generation + 1) % 2];
  add_relaxed_device(of_next, before + steps - load_relaxed_device(of_next), site);
}

// Message area `index` of a rank's scratch.
ARB_DEVICE char* scratch_message(const KernelParams& params, u32 rank, u32 index) {
  return params.scratch.base + rank * params.scratch.stride_bytes + flags_bytes +
         index * params.capacity_bytes;
}

// The same area on all ranks, to read from.
ARB_DEVICE Sources scratch_messages(const KernelParams& params, u32 index) {
  return {scratch_message(params, 0, index), params.scratch.stride_bytes, params.ranks};
}

// All ranks as a team whose areas, of area_bytes each, begin at `offset_bytes` of every rank's scratch data.
ARB_DEVICE Mailboxes mailboxes(const KernelParams& params, u32 ranks, u64 offset_bytes, u64 area_bytes) {
  return {scratch_message(params, 0, 0) + offset_bytes,
          params.scratch.stride_bytes,
          area_bytes,
          params.rank,
          ranks,
          0,
          1};
}

ARB_DEVICE WaitContext wait_context(const KernelParams& params) {
  return {params.local, params.failure, params.deadline_ns, params.rank};
}

// Number of this thread in the block when thread `first` is the first one; first < thread_count().
ARB_DEVICE u32 thread_index_from(u32 first) {
  return thread_index() >= first ? thread_index() - first : thread_index() + thread_count() - first;
}

// Flag (phase, block, writer) in `owner`'s scratch.
ARB_DEVICE u32* flag_of(const KernelParams& params, u32 owner, Phase phase, u32 block, u32 writer) {
  u32* flags = reinterpret_cast<u32*>(params.scratch.base + owner * params.scratch.stride_bytes);
  return flags + (static_cast<u32>(phase) * max_blocks + block) * max_ranks + writer;
}

// Tells this block's twin on every peer that the block has reached `generation` in `phase`. What the block
// did before a block barrier before this call is ordered before what a peer does after its wait_for_peers.
// Threads from `first_thread` on, less than there are, do it; those of two phases can do it at the same time.
template <u32 kRanks>
ARB_DEVICE void signal_peers(const KernelParams& params, Phase phase, u32 generation, Site site,
                             u32 first_thread = 0) {
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  for (u32 peer = thread_index_from(first_thread); peer < ranks; peer += thread_count())
    if (peer != params.rank)
      store_release_system(flag_of(params, peer, phase, block_index(), params.rank), generation, site);
}

// Waits until this block's twin on every peer has signalled `generation` in `phase`. Only the waiting threads
// are ordered after the peers: a block barrier must follow.
template <u32 kRanks>
ARB_DEVICE void wait_for_peers(const KernelParams& params, Phase phase, u32 generation, Site site,
                               u32 first_thread = 0) {
  const u32 ranks = kRanks == 0 ? params.ranks : kRanks;
  const WaitContext context = wait_context(params);
  for (u32 peer = thread_index_from(first_thread); peer < ranks; peer += thread_count())
    if (peer != params.rank)
      wait_reached_acquire_system(flag_of(params, params.rank, phase, block_index(), peer), generation,
                                  context, {phase, peer}, site);
}

// Part `index` of `parts` equal ones (they differ by one vector at most).
ARB_DEVICE VectorRange part_of(VectorRange range, u32 parts, u32 index) {
  const u64 length = range.end - range.begin;
  return {range.begin + length * index / parts, range.begin + length * (index + 1) / parts};
}

// The whole message in vectors, the last one perhaps partial.
template <class Element>
ARB_DEVICE VectorRange whole_message(u64 count_elements) {
  return {0, (count_elements * Element::bytes + vector_bytes - 1) / vector_bytes};
}

// A block's work on `shares` shares of a message, chunk by chunk, so that a chunk can be on its way while another is
// summed. A chunk is a pass of the block where shares are long; of shorter shares each block has one chunk, if any.
// The chunks of a round lie side by side.
template <class Element>
class ChunkedShares {
 public:
  ARB_DEVICE ChunkedShares(u64 count_elements, u32 shares) : shares_(shares) {
    const u32 vectors = static_cast<u32>(whole_message<Element>(count_elements).end);
    quotient_ = vectors / shares;
    remainder_ = vectors % shares;
    constexpr u32 line = detail::vectors_of_line;
    const u32 longest = quotient_ + (remainder_ == 0 ? 0 : 1);
    const u32 least = (longest + block_count() - 1) / block_count();
    const u32 pass = detail::vectors_of_pass();
    chunk_vectors_ = ((least < pass ? least : pass) + line - 1) / line * line;
    const u32 round_vectors = chunk_vectors_ * block_count();
    rounds_ = longest == 0 ? 1 : (longest + round_vectors - 1) / round_vectors;
  }
  // The same on all ranks and for all blocks, at least 1.
  ARB_DEVICE u32 rounds() const { return rounds_; }
  // First vector of share `number`, of fewer than 2^32 (64 GiB): vectors * number / shares.
  ARB_DEVICE u32 begin(u32 number) const { return quotient_ * number + remainder_ * number / shares_; }
  // This block's chunk of share `number` in `round`; empty behind the end of the share.
  ARB_DEVICE VectorRange chunk(u32 number, u32 round) const {
    const u64 first = begin(number);
    const u64 length = begin(number + 1) - first;
    const u64 offset = u64{round * block_count() + block_index()} * chunk_vectors_;
    const u64 end = offset + chunk_vectors_;
    return {first + (offset < length ? offset : length), first + (end < length ? end : length)};
  }

 private:
  u32 shares_;
  u32 quotient_;  // vectors / shares
  u32 remainder_;
  u32 chunk_vectors_;
  u32 rounds_;
};

// Which of `slots` scratch slots a call uses.
ARB_DEVICE u32 slot_of(u32 generation, u32 slots, Site site) {
  return choose_slot(generation % slots, site);
}

}  // namespace arb::machine
