// The inputs of a call: a pure function of seed, call, rank and index. Random ones are make_input() in
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

// The number of a call: graphs say which of theirs, and the counter how many lie behind.
ARB_DEVICE u64 call_number(const u64* finished_calls, u64 call) {
  return finished_calls == nullptr ? call : *finished_calls + call;
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

// Bit patterns of a type's corners.
template <class Element>
struct Corners;
template <u32 kMantissaBits, u32 kInfinity, u32 kOne>
struct CornerBits {
  static constexpr u32 infinity = kInfinity;
  static constexpr u32 one = kOne;
  static constexpr u32 sign = kInfinity + (1u << kMantissaBits);
  static constexpr u32 all_ones = sign | (sign - 1);
  static constexpr u32 signalling_nan = kInfinity | 1u;
  static constexpr u32 quiet_nan = kInfinity | 1u << (kMantissaBits - 1);
  static constexpr u32 largest = kInfinity - 1;
  static constexpr u32 eighth_of_largest = largest - (3u << kMantissaBits);  // so that no sum overflows
  static constexpr u32 smallest_denormal = 1;
  static constexpr u32 largest_denormal = (1u << kMantissaBits) - 1;
};
template <>
struct Corners<machine::bf16> : CornerBits<7, 0x7f80u, 0x3f80u> {};
template <>
struct Corners<machine::fp16> : CornerBits<10, 0x7c00u, 0x3c00u> {};
template <>
struct Corners<machine::fp32> : CornerBits<23, 0x7f800000u, 0x3f800000u> {};

// Each word of the message is of one kind on all ranks, so that sums of one kind occur (-0 + -0 is -0).
template <class Element>
ARB_DEVICE u32 special_bits(u64 seed, u32 rank, u64 index) {
  using Corner = Corners<Element>;
  constexpr u32 per_word = 4 / Element::bytes;
  const u64 of_word = mix(mix(~seed * golden) + index / per_word * golden);
  const u64 of_element = mix(mix(~seed * golden + rank + 1) + index * golden);
  const u32 sign = of_element >> 63 != 0 ? Corner::sign : 0;
  switch (of_word % 8) {
    case 0:
      return Corner::sign;
    case 1:
      return sign;
    case 2:
      return sign | (of_element % 2 == 0 ? Corner::smallest_denormal : Corner::largest_denormal);
    case 3:
      return sign | Corner::eighth_of_largest;
    case 4:
      if (of_element % 8 == 0) return sign | Corner::infinity;
      if (of_element % 8 == 1) return sign | Corner::signalling_nan;
      if (of_element % 8 == 2) return sign | Corner::quiet_nan;
      break;
    case 5:  // the sentinel: a whole word of it
      if ((of_word >> 8 >> rank) % 2 == 0) return Corner::all_ones;
      break;
    case 6:
      return sign | Corner::one;
    default:
      break;
  }
  return element_bits<Element>(input_value(seed, rank, index));
}

// All inputs of one call.
template <class Element>
struct CallInputs {
  u64 seed;
  Pattern pattern;
  u32 other_rank;  // Pattern::perturbed: which element of which rank is not as in other calls
  u64 other_element;

  ARB_DEVICE explicit CallInputs(const InputParams& params) {
    const u64 call = call_number(params.finished_calls, params.call);
    pattern = params.pattern;
    seed = params.seed;
    if (pattern != Pattern::perturbed) seed += call;
    const u64 drawn = mix(mix(params.seed * golden + 1) + call * golden);
    other_rank = params.ranks == 0 ? 0 : static_cast<u32>(drawn % params.ranks);
    other_element = params.count_elements == 0 ? 0 : (drawn >> 8) % params.count_elements;
  }

  ARB_DEVICE u32 bits(u32 rank, u64 index) const {
    if (pattern == Pattern::special) return special_bits<Element>(seed, rank, index);
    float value = input_value(seed, rank, index);
    // Further from the usual value than any error bound.
    if (pattern == Pattern::perturbed && rank == other_rank && index == other_element)
      value += value < 0 ? 1.0f : -1.0f;
    return element_bits<Element>(value);
  }
};

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
