// The emulator's only source of chance: one seed, one sequence, on every machine.
#pragma once

#include <cstdint>

namespace arb::emulator {

// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and any seed is a good one.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // 64 uniform bits.
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound); bound > 0.
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32);
  }
  // True once in `odds` on average.
  bool one_in(std::uint32_t odds) { return below(odds) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace arb::emulator
