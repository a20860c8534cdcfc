// Who runs: the emulated twin of kernels/machine/execution.cuh.
#pragma once

#include <arb/abi.h>

#include "../engine.h"
#include "../kernel_table.h"

#define ARB_DEVICE inline
// Defines the exported function `name` that runs `call`, an expression in `params`.
#define ARB_KERNEL(name, call)                                             \
  extern "C" void name(const arb::KernelParams& params);                   \
  extern "C" void name([[maybe_unused]] const arb::KernelParams& params) { \
    call;                                                                  \
  }
#define ARB_DENSE_KERNEL ARB_KERNEL
// Lists a file's exported functions name__<suffix>.
#define ARB_KERNEL_TABLE(name, ...)                                                    \
  namespace {                                                                          \
  constexpr arb::emulator::KernelEntry arb_kernel_entries[] = {                        \
      ARB_DETAIL_REPEAT(ARB_DETAIL_ENTRIES(name, __VA_ARGS__))};                       \
  }                                                                                    \
  extern "C" {                                                                         \
  extern const arb::emulator::KernelTable arb_kernel_table_##name;                     \
  const arb::emulator::KernelTable arb_kernel_table_##name{                            \
      arb_kernel_entries, sizeof(arb_kernel_entries) / sizeof(arb_kernel_entries[0])}; \
  }
// A macro that goes over a list of any length (to 256) by deferred expansion.
#define ARB_DETAIL_ENTRIES(name, suffix, ...) \
  {#name "__" #suffix, &name##__##suffix}, __VA_OPT__(ARB_DETAIL_AGAIN ARB_DETAIL_PARENS(name, __VA_ARGS__))
#define ARB_DETAIL_AGAIN() ARB_DETAIL_ENTRIES
#define ARB_DETAIL_PARENS ()
#define ARB_DETAIL_REPEAT(...) ARB_DETAIL_REPEAT_64(ARB_DETAIL_REPEAT_64(__VA_ARGS__))
#define ARB_DETAIL_REPEAT_64(...) ARB_DETAIL_REPEAT_16(ARB_DETAIL_REPEAT_16(__VA_ARGS__))
#define ARB_DETAIL_REPEAT_16(...) ARB_DETAIL_REPEAT_4(ARB_DETAIL_REPEAT_4(__VA_ARGS__))
#define ARB_DETAIL_REPEAT_4(...) __VA_ARGS__

namespace arb::machine {

// Labels one ordering call so that the emulator can weaken exactly that one.
struct Site {
  const char* label;
  constexpr explicit Site(const char* text) : label(text) {}
};

namespace detail {
inline emulator::Engine& engine() {
  return *emulator::running->engine;
}
}  // namespace detail

inline u32 thread_index() {
  return emulator::running->thread;
}
inline u32 thread_count() {
  return emulator::running->threads;
}
inline u32 block_index() {
  return emulator::running->block;
}
inline u32 block_count() {
  return emulator::running->blocks;
}

// All threads of the block arrive; what each did before is ordered before what any does after.
inline void block_barrier(Site site) {
  detail::engine().block_barrier(site.label);
}

// `slot` itself; a labelled site because a protocol that never switches must be caught.
inline u32 choose_slot(u32 slot, Site site) {
  return detail::engine().choose_slot(slot, site.label);
}

// Until all kernels that this one follows have ended and their accesses are visible; no effect under a plain
// edge, which has waited already. Nothing that they touch may be touched before.
inline void wait_for_previous_kernel(Site site) {
  detail::engine().wait_for_previous_kernel(site.label);
}

// The value; when it is computed is of no interest here.
template <class T>
T* computed(T* pointer) {
  return pointer;
}
inline u64 computed(u64 value) {
  return value;
}
inline bool computed(bool value) {
  return value;
}

// Lets the next kernel of the stream start once every block has said so; no effect under a plain edge.
inline void let_next_kernel_start() {
  detail::engine().let_next_kernel_start();
}

}  // namespace arb::machine
