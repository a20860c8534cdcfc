// The right answer, in double, and how far a result may be from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "types.h"

namespace arb {

// Bytes of `values` rounded to `dtype` (round to nearest even; NaN becomes the dtype's quiet NaN).
std::vector<std::byte> encode(std::span<const float> values, Dtype dtype);
// The exact values of elements stored as `dtype`.
std::vector<float> decode(std::span<const std::byte> bytes, Dtype dtype);
// A tensor of `count` elements: pseudo-random in (-1, 1), a pure function of seed, rank and index.
std::vector<std::byte> make_input(Dtype dtype, std::uint64_t count, std::uint64_t seed, std::uint32_t rank);

// How far a sum of `ranks` numbers that was rounded `roundings` times to `dtype` may be from the exact one:
// relative_bound * (sum of |addends|) + absolute_bound. Each rounding to the dtype and each fp32 addition
// errs by at most the unit roundoff (Higham, Accuracy and Stability, ch. 4), near zero by half a denormal's
// spacing.
double relative_bound(Dtype dtype, std::uint32_t roundings, std::uint32_t ranks);
double absolute_bound(Dtype dtype, std::uint32_t roundings);

struct CheckResult {
  bool correct = true;
  double max_error = 0;  // largest |result - exact| / (sum of |addends|)
  std::uint64_t first_bad = 0;
  std::string sentence;  // about the first wrong element; empty when correct
};
// Compares one rank's result with the double-precision sum of all inputs, within the bounds above. Inf and
// NaN must come out as IEEE sums do.
CheckResult check_sum(std::span<const std::byte> result, const std::vector<std::vector<std::byte>>& inputs,
                      Dtype dtype, std::uint32_t roundings);
// 64-bit hash of a tensor's bytes as 16 hex digits, equal to what the check kernel computes on a device.
std::string hash_hex(std::span<const std::byte> bytes);

}  // namespace arb
