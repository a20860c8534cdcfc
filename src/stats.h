// Figures from samples. Pure functions; verdicts between launches belong here too when they come.
#pragma once

#include <cstdint>
#include <span>

namespace arb {

// Percentiles of one batch of samples, in microseconds a call.
struct Percentiles {
  double p50_us = 0;
  double p95_us = 0;
  double p99_us = 0;
  double min_us = 0;

  friend bool operator==(const Percentiles&, const Percentiles&) = default;
};

// The value below which `fraction` (0 to 1) of the sorted samples lie, interpolated linearly between
// neighbours (numpy's default). Throws std::invalid_argument on no samples or a fraction outside [0, 1].
double quantile_of_sorted(std::span<const double> sorted, double fraction);
// Percentiles of samples in any order. Throws std::invalid_argument on none, or on one that is not finite and
// positive.
Percentiles percentiles_of(std::span<const double> samples_us);

}  // namespace arb
