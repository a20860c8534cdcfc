// Single words with an order and a scope in the name. No atomics on peer memory: flags are plain stores.
#pragma once

#include <arb/abi.h>

#include <machine/execution.cuh>

namespace arb::machine {

ARB_DEVICE u64 load_relaxed_device(const u64* address) {
  u64 value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

ARB_DEVICE u32 load_relaxed_device(const u32* address) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// Everything ordered after this load sees what was ordered before the store that it read, anywhere in the
// system.
ARB_DEVICE u32 load_acquire_system(const u32* address, Site) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// Pairs with load_acquire_system; `address` may be a peer's memory.
ARB_DEVICE void store_release_system(u32* address, u32 value, Site) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// Fire and forget; own memory only.
ARB_DEVICE void add_relaxed_device(u64* address, u64 value, Site) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

// Fire and forget; own memory only.
ARB_DEVICE void max_relaxed_device(u64* address, u64 value) {
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

// Own memory only.
ARB_DEVICE u32 exchange_relaxed_device(u32* address, u32 value) {
  u32 old;
  asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(address), "r"(value)
               : "memory");
  return old;
}

// Into a peer's memory or pinned host memory, to be seen soon; it orders nothing.
ARB_DEVICE void store_relaxed_system(u32* address, u32 value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

}  // namespace arb::machine
