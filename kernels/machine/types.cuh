// Element types as the 32-bit words that ranges move: how a word joins a float sum, and how a sum rounds to a
// word.
#pragma once

#include <arb/abi.h>

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

// The sum of one word's elements over ranks, in fp32. The first rank's value starts it, so that -0 survives.
template <class Element>
struct Sum;

template <>
struct Sum<bf16> {
  float low, high;

  ARB_DEVICE static Sum of(u32 word) {
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
  }
  ARB_DEVICE void add(u32 word) {
    const Sum other = of(word);
    low += other.low;
    high += other.high;
  }
  // Round to nearest even; any NaN becomes the quiet NaN 0x7fff.
  ARB_DEVICE u32 rounded() const {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
};

template <>
struct Sum<fp16> {
  float low, high;

  ARB_DEVICE static Sum of(u32 word) {
    Sum sum;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}"
        : "=f"(sum.low), "=f"(sum.high)
        : "r"(word));
    return sum;
  }
  ARB_DEVICE void add(u32 word) {
    const Sum other = of(word);
    low += other.low;
    high += other.high;
  }
  ARB_DEVICE u32 rounded() const {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
};

template <>
struct Sum<fp32> {
  float value;

  ARB_DEVICE static Sum of(u32 word) { return {__uint_as_float(word)}; }
  ARB_DEVICE void add(u32 word) { value += __uint_as_float(word); }
  ARB_DEVICE u32 rounded() const { return __float_as_uint(value); }
};

}  // namespace arb::machine
