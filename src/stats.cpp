#include "stats.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace arb {

double quantile_of_sorted(std::span<const double> sorted, double fraction) {
  if (sorted.empty()) throw std::invalid_argument("a quantile of no samples");
  if (!(fraction >= 0 && fraction <= 1)) throw std::invalid_argument("a quantile outside 0 to 1");
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - std::floor(place));
}

Percentiles percentiles_of(std::span<const double> samples_us) {
  std::vector<double> sorted(samples_us.begin(), samples_us.end());
  const auto good = [](double sample) { return std::isfinite(sample) && sample > 0; };
  if (!std::ranges::all_of(sorted, good)) throw std::invalid_argument("a sample that is not a positive time");
  std::ranges::sort(sorted);
  return {.p50_us = quantile_of_sorted(sorted, 0.50),
          .p95_us = quantile_of_sorted(sorted, 0.95),
          .p99_us = quantile_of_sorted(sorted, 0.99),
          .min_us = sorted.front()};
}

}  // namespace arb
