// The inputs of a cell: a pure function of seed, rank and index, the same as make_input() in
// src/reference.cpp.
#pragma once

#include "support.cuh"

namespace arb::support {

constexpr u64 golden = 0x9E3779B97F4A7C15ull;

// SplitMix64's finaliser (Steele, Lea, Flood, "Fast splittable pseudorandom number generators").
ARB_DEVICE u64 mix(u64 value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

// In [-1, 1), a multiple of 2^-23.
ARB_DEVICE float input_value(u64 seed, u32 rank, u64 index) {
  const u64 bits = mix(mix(seed * golden + rank) + index * golden);
  return static_cast<float>(static_cast<int>(bits >> 40) - (1 << 23)) * 0x1p-23f;
}

// Bits of the value as a 2-byte element in the low half of a word, or as fp32.
template <class Element>
ARB_DEVICE u32 element_bits(float value) {
  if constexpr (Element::bytes == 2)
    return machine::Sum<Element>{value, 0.0f}.rounded() & 0xffffu;
  else
    return machine::Sum<Element>{value}.rounded();
}

template <class Element>
ARB_DEVICE float element_value(u32 bits) {
  if constexpr (Element::bytes == 2)
    return machine::Sum<Element>::of(bits).low;
  else
    return machine::Sum<Element>::of(bits).value;
}

// Calls visit(Element{}) with the type that `dtype` names.
template <class Visit>
ARB_DEVICE void with_element(DtypeCode dtype, Visit visit) {
  if (dtype == DtypeCode::bf16)
    visit(machine::bf16{});
  else if (dtype == DtypeCode::fp16)
    visit(machine::fp16{});
  else
    visit(machine::fp32{});
}

}  // namespace arb::support
