// Single words with an order and a scope in the name: the emulated twin of kernels/machine/memory.cuh.
#pragma once

#include <arb/abi.h>

#include <machine/execution.cuh>

namespace arb::machine {

namespace detail {
constexpr emulator::Access relaxed_device{emulator::Order::relaxed, emulator::Scope::device};
constexpr emulator::Access relaxed_system{emulator::Order::relaxed, emulator::Scope::system};
constexpr emulator::Access acquire_system{emulator::Order::acquire, emulator::Scope::system};
constexpr emulator::Access release_system{emulator::Order::release, emulator::Scope::system};
}  // namespace detail

inline u64 load_relaxed_device(const u64* address) {
  return detail::engine().load(address, sizeof(u64), detail::relaxed_device, nullptr);
}

inline u32 load_relaxed_device(const u32* address) {
  return static_cast<u32>(detail::engine().load(address, sizeof(u32), detail::relaxed_device, nullptr));
}

// Everything ordered after this load sees what was ordered before the store that it read, anywhere in the
// system.
inline u32 load_acquire_system(const u32* address, Site site) {
  return static_cast<u32>(detail::engine().load(address, sizeof(u32), detail::acquire_system, site.label));
}

// Pairs with load_acquire_system; `address` may be a peer's memory.
inline void store_release_system(u32* address, u32 value, Site site) {
  detail::engine().store(address, sizeof(u32), value, detail::release_system, site.label);
}

// Fire and forget; own memory only.
inline void add_relaxed_device(u64* address, u64 value, Site site) {
  detail::engine().add(address, sizeof(u64), value, detail::relaxed_device, site.label);
}

// Into pinned host memory, for the host to read while the device still runs.
inline void store_relaxed_system(u32* address, u32 value) {
  detail::engine().store(address, sizeof(u32), value, detail::relaxed_system, nullptr);
}

}  // namespace arb::machine
