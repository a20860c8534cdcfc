// Element types as the 32-bit words that ranges move: the emulated twin of kernels/machine/types.cuh, with
// PTX's rounding and PTX's NaNs.
#pragma once

#include <arb/abi.h>

#include <bit>
#include <machine/execution.cuh>

namespace arb::machine {

struct bf16 {
  static constexpr u32 bytes = 2;
};
struct fp16 {
  static constexpr u32 bytes = 2;
};
struct fp32 {
  static constexpr u32 bytes = 4;
};

namespace detail {

// Branch-free, so that loops over them vectorise.
inline float float_from_bf16(u32 bits) {
  return std::bit_cast<float>(bits << 16);
}
// cvt.rn.bf16.f32: to nearest even; any NaN becomes 0x7fff.
inline u32 bf16_from_float(float value) {
  const u32 bits = std::bit_cast<u32>(value);
  const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded;
}
// cvt.f32.f16: exact. The magic factor 2^112 moves the exponent, denormals included.
inline float float_from_fp16(u32 bits) {
  const float magnitude = std::bit_cast<float>((bits & 0x7fffu) << 13) * std::bit_cast<float>(0x77800000u);
  const u32 special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<u32>(magnitude) | special | (bits & 0x8000u) << 16);
}
// cvt.rn.f16.f32: to nearest even, overflow to infinity; any NaN becomes 0x7fff.
inline u32 fp16_from_float(float value) {
  const u32 bits = std::bit_cast<u32>(value);
  const u32 magnitude = bits & 0x7fffffffu;
  const u32 sign = (bits >> 16) & 0x8000u;
  // Normal results: round the 13 dropped bits, then move the exponent.
  const u32 normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // Denormal results: adding 0.5 leaves the rounded result in the low bits of the float.
  const u32 denormal =
      std::bit_cast<u32>(std::bit_cast<float>(magnitude < 0x38800000u ? magnitude : 0u) + 0.5f) - 0x3f000000u;
  const u32 finite = magnitude < 0x38800000u ? denormal : normal;
  const u32 result = (magnitude >= 0x477ff000u ? 0x7c00u : finite) | sign;
  return magnitude > 0x7f800000u ? 0x7fffu : result;
}

}  // namespace detail

// The sum of one word's elements over ranks, in fp32. The first rank's value starts it, so that -0 survives.
template <class Element>
struct Sum;

template <>
struct Sum<bf16> {
  float low, high;

  static Sum of(u32 word) {
    return {detail::float_from_bf16(word & 0xffffu), detail::float_from_bf16(word >> 16)};
  }
  void add(u32 word) {
    const Sum other = of(word);
    low += other.low;
    high += other.high;
  }
  // Round to nearest even; any NaN becomes the quiet NaN 0x7fff.
  u32 rounded() const { return detail::bf16_from_float(low) | detail::bf16_from_float(high) << 16; }
};

template <>
struct Sum<fp16> {
  float low, high;

  static Sum of(u32 word) {
    return {detail::float_from_fp16(word & 0xffffu), detail::float_from_fp16(word >> 16)};
  }
  void add(u32 word) {
    const Sum other = of(word);
    low += other.low;
    high += other.high;
  }
  u32 rounded() const { return detail::fp16_from_float(low) | detail::fp16_from_float(high) << 16; }
};

template <>
struct Sum<fp32> {
  float value;

  static Sum of(u32 word) { return {std::bit_cast<float>(word)}; }
  void add(u32 word) { value += std::bit_cast<float>(word); }
  // A GPU's add gives the NaN 0x7fffffff whatever it was given.
  u32 rounded() const {
    const u32 bits = std::bit_cast<u32>(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : bits;
  }
};

}  // namespace arb::machine
