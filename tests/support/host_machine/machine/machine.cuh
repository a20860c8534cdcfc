// What kernels/support/data.cu needs of a machine; element types are the emulated machine's.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include <machine/execution.cuh>
#include <machine/types.cuh>

namespace arb::machine {

namespace detail {

template <class Element>
u32 load_element(const void* message, u64 index) {
  u32 bits = 0;
  std::memcpy(&bits, static_cast<const char*>(message) + index * Element::bytes, Element::bytes);
  return bits;
}
template <class Element>
void store_element(void* message, u64 index, u32 bits) {
  std::memcpy(static_cast<char*>(message) + index * Element::bytes, &bits, Element::bytes);
}

}  // namespace detail

inline void add_relaxed_device(u64* address, u64 value, Site) {
  *address += value;
}
inline void max_relaxed_device(u64* address, u64 value) {
  *address = std::max(*address, value);
}
inline u64 now_ns() {
  static u64 clock_ns = 0;
  return clock_ns += 100;
}

}  // namespace arb::machine

inline unsigned int __float_as_uint(float value) {
  return std::bit_cast<unsigned int>(value);
}
