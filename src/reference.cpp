#include "reference.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace arb {
namespace {

constexpr std::uint64_t golden = 0x9E3779B97F4A7C15ull;

// SplitMix64's finaliser (Steele, Lea, Flood, "Fast splittable pseudorandom number generators").
constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

std::uint16_t bf16_from(float value) {
  if (std::isnan(value)) return 0x7fff;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t fp16_from(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  if (std::isnan(value)) return 0x7fff;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0F) return static_cast<std::uint16_t>(sign | 0x7c00u);
  // Spacing of fp16 at this magnitude; below 2^-14 it is that of the denormals.
  const int exponent = magnitude < 0x1p-14F ? -14 : std::ilogb(magnitude);
  const float spacing = std::ldexp(1.0F, exponent - 10);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(magnitude / spacing));
  // A carry out of the mantissa moves into the exponent by itself.
  const std::uint32_t base = magnitude < 0x1p-14F ? 0u : static_cast<std::uint32_t>(exponent + 15) << 10;
  return static_cast<std::uint16_t>(sign | (base + steps - (base == 0 ? 0u : 1024u)));
}

float float_from_fp16(std::uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0F : 1.0F;
  const int exponent = (bits >> 10) & 0x1f;
  const auto mantissa = static_cast<float>(bits & 0x3ffu);
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024.0F, exponent - 25);
}

float element(const std::byte* bytes, std::uint64_t index, Dtype dtype) {
  if (dtype == Dtype::fp32) {
    float value = 0;
    std::memcpy(&value, bytes + 4 * index, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes + 2 * index, 2);
  return dtype == Dtype::bf16 ? float_from_bf16(bits) : float_from_fp16(bits);
}

double unit_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return 0x1p-8;
    case Dtype::fp16:
      return 0x1p-11;
    case Dtype::fp32:
      break;
  }
  return 0x1p-24;
}

double largest_finite(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return 0x1.FEp127;
    case Dtype::fp16:
      return 65504;
    case Dtype::fp32:
      break;
  }
  return std::numeric_limits<float>::max();
}

// Half the spacing of the dtype's denormals: what a rounding may err near zero.
double denormal_half_spacing(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return 0x1p-134;
    case Dtype::fp16:
      return 0x1p-25;
    case Dtype::fp32:
      break;
  }
  return 0x1p-150;
}

}  // namespace

std::vector<std::byte> encode(std::span<const float> values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * size_of_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == Dtype::fp32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const std::uint16_t bits = dtype == Dtype::bf16 ? bf16_from(values[i]) : fp16_from(values[i]);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  return bytes;
}

std::vector<float> decode(std::span<const std::byte> bytes, Dtype dtype) {
  std::vector<float> values(bytes.size() / size_of_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(bytes.data(), i, dtype);
  return values;
}

std::vector<std::byte> make_input(Dtype dtype, std::uint64_t count, std::uint64_t seed, std::uint32_t rank) {
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mix(mix(seed * golden + rank) + i * golden);
    values[i] = static_cast<float>(static_cast<std::int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23F;
  }
  return encode(values, dtype);
}

double relative_bound(Dtype dtype, std::uint32_t roundings, std::uint32_t ranks) {
  return roundings * unit_roundoff(dtype) + ranks * 0x1p-24;
}

double absolute_bound(Dtype dtype, std::uint32_t roundings) {
  return roundings * denormal_half_spacing(dtype);
}

CheckResult check_sum(std::span<const std::byte> result, const std::vector<std::vector<std::byte>>& inputs,
                      Dtype dtype, std::uint32_t roundings) {
  CheckResult check;
  const std::uint64_t count = result.size() / size_of_bytes(dtype);
  const double relative = relative_bound(dtype, roundings, static_cast<std::uint32_t>(inputs.size()));
  for (std::uint64_t i = 0; i < count; ++i) {
    double exact = 0;
    double magnitude = 0;
    double finite_magnitude = 0;
    for (const auto& input : inputs) {
      const double value = element(input.data(), i, dtype);
      exact += value;
      magnitude += std::fabs(value);
      if (std::isfinite(value)) finite_magnitude += std::fabs(value);
    }
    const double got = element(result.data(), i, dtype);
    const double bound = relative * magnitude + absolute_bound(dtype, roundings);
    bool good = false;
    if (std::isnan(exact)) {
      good = std::isnan(got);
    } else if (std::isinf(exact) || !std::isfinite(got)) {
      // A partial or the final sum may leave the range of the dtype (or of fp32) although the exact sum does
      // not; and where partial sums are rounded, infinities of both signs may meet.
      const bool may_overflow = finite_magnitude * (1 + relative) >= largest_finite(dtype);
      good = got == exact || (may_overflow && std::isinf(got) && std::isfinite(exact)) ||
             (may_overflow && std::isnan(got) && roundings > 1);
    } else {
      const double error = std::fabs(got - exact);
      good = error <= bound;
      if (magnitude > 0 && std::isfinite(error))
        check.max_error = std::max(check.max_error, error / magnitude);
    }
    if (!good && check.correct) {
      check.correct = false;
      check.first_bad = i;
      check.sentence = fmt::format("element {} of {} is {} where the exact sum is {} (bound {:.3g})", i,
                                   count, got, exact, bound);
    }
  }
  return check;
}

std::string hash_hex(std::span<const std::byte> bytes) {
  // A sum, so that the threads of a device can add their parts in any order; the last word is padded with
  // zeros.
  std::uint64_t hash = 0;
  for (std::uint64_t word = 0; word * 4 < bytes.size(); ++word) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + word * 4, std::min<std::size_t>(4, bytes.size() - word * 4));
    hash += mix(bits + (word + 1) * golden);
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace arb
