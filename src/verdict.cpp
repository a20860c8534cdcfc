#include "verdict.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include "stats.h"

namespace arb {
namespace {

constexpr std::size_t most_exact_flips = 24;
constexpr int random_flips = 19'999;
constexpr std::uint64_t most_more_blocks = 1'000'000;

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Sum of squared deviations over (size - 1).
double variance_of(std::span<const double> values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum / static_cast<double>(values.size() - 1);
}

// Cells share their numbers of blocks, and each value takes microseconds: those met before are kept.
double t_quantile(double degrees, double probability) {
  constexpr std::size_t most_kept = 1000;
  thread_local std::map<std::pair<double, double>, double> kept;
  if (kept.size() > most_kept) kept.clear();
  const auto [place, is_new] = kept.try_emplace({degrees, probability}, 0.0);
  if (is_new) place->second = boost::math::quantile(boost::math::students_t(degrees), probability);
  return place->second;
}
double z_quantile(double probability) {
  return boost::math::quantile(boost::math::normal(), probability);
}

// Sums of all sign choices, in ascending order.
std::vector<double> signed_sums(std::span<const double> values) {
  std::vector<double> sums = {0};
  for (const double value : values) {
    // Both halves stay sorted, so one merge keeps the whole sorted.
    std::vector<double> next(sums.size() * 2);
    const double size = std::abs(value);
    std::size_t low = 0;
    std::size_t high = 0;
    for (double& sum : next) {
      const bool take_low =
          low < sums.size() && (high == sums.size() || sums[low] - size <= sums[high] + size);
      sum = take_low ? sums[low++] - size : sums[high++] + size;
    }
    sums = std::move(next);
  }
  return sums;
}

// How one cell stands before the others are looked at.
struct Standing {
  std::string group;
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  Estimate estimate;
  std::optional<double> sign_flip;
  std::optional<double> hodges_lehmann;
  std::optional<Estimate> placebo;  // A' against A
  std::optional<Estimate> drift;    // of any two runs; already in `estimate` where that is the wider
};

using BandKey = std::pair<std::string, Band>;

// Blocks after which a mean of such a spread lies within `room` of the truth.
double blocks_within(const Estimate& estimate, double blocks, double room, double z) {
  const double ratio = z * estimate.standard_error * std::sqrt(blocks) / room;
  return ratio * ratio + z * z / 2;
}

// Blocks until the interval settles the cell if estimate and spread stay; empty where no number would.
std::optional<std::uint64_t> more_blocks_for(const Standing& cell, const Judgement& judgement, double margin,
                                             double alpha) {
  const double blocks = static_cast<double>(cell.blocks);
  const double size = std::abs(cell.estimate.mean);
  const bool different = size >= margin;
  double z = z_quantile(1 - alpha);
  double room = margin - size;
  if (different) {
    // Adjusting made p larger by this factor, and will again.
    constexpr double most_factor = 1e6;
    const double factor =
        judgement.p > 0 ? std::clamp(judgement.q / judgement.p, 1.0, most_factor) : most_factor;
    z = -z_quantile(alpha / 2 / factor);
    room = size;
  }
  // Launches of these two runs tell nothing of other runs.
  if (cell.drift &&
      (cell.drift->standard_error >= cell.estimate.standard_error || z * cell.drift->standard_error >= room))
    return std::nullopt;
  double needed = blocks_within(cell.estimate, blocks, room, z);
  if (different && cell.placebo) {
    const double left = size - std::abs(cell.placebo->mean);
    if (left <= 0) return std::nullopt;
    constexpr double of_the_bound = 0.95;
    needed = std::max(needed, blocks_within(*cell.placebo, blocks, left, z_quantile(of_the_bound)));
  }
  const double more = std::ceil(std::max(1.0, needed - blocks));
  return more < static_cast<double>(most_more_blocks) ? static_cast<std::uint64_t>(more) : most_more_blocks;
}

std::vector<Judgement> judge_all(const std::vector<Standing>& cells, const std::map<BandKey, Estimate>& bands,
                                 const Rules& rules) {
  std::vector<double> band_p;
  for (const auto& [key, estimate] : bands) band_p.push_back(p_value(estimate));
  const std::vector<double> band_q = holm(band_p);
  std::map<BandKey, double> q_of_band;
  for (std::size_t at = 0; const auto& [key, estimate] : bands) q_of_band[key] = band_q[at++];

  std::vector<Judgement> judgements(cells.size());
  std::vector<std::size_t> fallen;
  std::vector<double> fallen_p;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Judgement& judgement = judgements[i];
    judgement.p = p_value(cells[i].estimate);
    judgement.band_q = q_of_band.at({cells[i].group, band_of(cells[i].bytes)});
    // In a band that stands, no size may be called different.
    judgement.q = std::max(judgement.p, judgement.band_q);
    if (judgement.band_q < rules.alpha) {
      fallen.push_back(i);
      fallen_p.push_back(judgement.p);
    }
  }
  const std::vector<double> fallen_q = benjamini_hochberg(fallen_p);
  for (std::size_t i = 0; i < fallen.size(); ++i) {
    judgements[fallen[i]].q = std::max(fallen_q[i], judgements[fallen[i]].band_q);
  }

  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Standing& cell = cells[i];
    const Estimate& estimate = cell.estimate;
    Judgement& judgement = judgements[i];
    judgement.blocks = cell.blocks;
    judgement.log_change = estimate.mean;
    judgement.change = std::expm1(estimate.mean);
    const Interval outer = interval(estimate, 1 - rules.alpha);
    const Interval inner = interval(estimate, 1 - 2 * rules.alpha);
    judgement.ci_low = std::expm1(outer.low);
    judgement.ci_high = std::expm1(outer.high);
    judgement.sign_flip = cell.sign_flip;
    if (cell.hodges_lehmann) judgement.hodges_lehmann = std::expm1(*cell.hodges_lehmann);
    const bool large = band_of(cell.bytes) == Band::large;
    const double margin = std::log1p(large ? rules.bandwidth_margin : rules.latency_margin);
    judgement.margin = std::expm1(margin);
    // One margin for both questions would be simpler. But what A differs from itself by is noise, and with it in the
    // margin of EQUIVALENT the noisier a machine the more it would find equivalent. So noise only raises what counts
    // as a difference, and what lies between is INCONCLUSIVE.
    double least_difference = margin;
    if (cell.placebo) {
      const double bound = bound_95(*cell.placebo);
      judgement.placebo_bound = std::expm1(bound);
      least_difference = std::max(margin, bound);
    }
    judgement.mde = std::expm1(smallest_detectable(estimate, rules.alpha));
    judgement.tests_disagree =
        cell.sign_flip && (*cell.sign_flip < rules.alpha) != (judgement.p < rules.alpha);

    // Equivalence has to hold for the estimate that no wild block can move, too.
    const double shift = cell.hodges_lehmann ? *cell.hodges_lehmann - estimate.mean : 0;
    const double inner_low = inner.low + std::min(0.0, shift);
    const double inner_high = inner.high + std::max(0.0, shift);
    if (judgement.tests_disagree) {
      judgement.verdict = Verdict::inconclusive;
    } else if (judgement.q < rules.alpha && std::abs(estimate.mean) >= least_difference) {
      judgement.verdict = estimate.mean < 0 ? Verdict::faster : Verdict::slower;
    } else if (inner_low > -margin && inner_high < margin) {
      judgement.verdict = Verdict::equivalent;
    }
    if (judgement.verdict == Verdict::inconclusive) {
      judgement.more_blocks = more_blocks_for(cell, judgement, margin, rules.alpha);
    }
  }
  return judgements;
}

// The values of several cells, averaged place by place (block or launch).
std::vector<double> averaged(const std::vector<std::span<const double>>& lists) {
  std::size_t places = std::numeric_limits<std::size_t>::max();
  for (const auto& list : lists) places = std::min(places, list.size());
  std::vector<double> means(places, 0);
  for (const auto& list : lists) {
    for (std::size_t i = 0; i < places; ++i) means[i] += list[i] / static_cast<double>(lists.size());
  }
  return means;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// Verdicts on one of the lists of each series.
std::vector<Judgement> judge_paired(std::span<const PairedSeries> cells, const Rules& rules,
                                    std::vector<double> PairedSeries::*list, bool with_placebo) {
  std::vector<Standing> standings;
  std::map<BandKey, std::vector<std::span<const double>>> by_band;
  for (const PairedSeries& cell : cells) {
    const std::vector<double>& values = cell.*list;
    if (values.empty() && list == &PairedSeries::placebo) continue;
    require(cell.placebo.empty() || cell.placebo.size() == cell.log_ratios.size(),
            "a placebo of another number of blocks");
    Standing standing{.group = cell.group,
                      .bytes = cell.bytes,
                      .blocks = values.size(),
                      .estimate = paired_estimate(values),
                      .sign_flip = sign_flip_p(values, rules.seed),
                      .hodges_lehmann = hodges_lehmann(values),
                      .placebo = {},
                      .drift = {}};
    if (with_placebo && !cell.placebo.empty()) standing.placebo = paired_estimate(cell.placebo);
    by_band[{cell.group, band_of(cell.bytes)}].push_back(values);
    standings.push_back(std::move(standing));
  }
  std::map<BandKey, Estimate> bands;
  for (const auto& [key, lists] : by_band) bands[key] = paired_estimate(averaged(lists));
  return judge_all(standings, bands, rules);
}

// What two runs of the same thing differ by, as earlier runs show it; where they are too few, as is taken for true.
std::optional<Estimate> drift_of(const std::vector<double>& history, double prior) {
  constexpr double sure = 1e6;  // degrees of freedom
  if (history.size() < fewest_history_runs && prior == 0) return std::nullopt;
  if (history.size() < fewest_history_runs) return Estimate{0, std::numbers::sqrt2 * prior, sure};
  return Estimate{0, std::sqrt(2 * variance_of(history)), static_cast<double>(history.size() - 1)};
}

// With the wider interval of the two.
Estimate with_drift(const Estimate& estimate, const std::optional<Estimate>& drift) {
  if (!drift || drift->standard_error <= estimate.standard_error) return estimate;
  return {estimate.mean, drift->standard_error, drift->degrees};
}

}  // namespace

double launch_summary_us(std::uint64_t message_bytes, std::span<const double> samples_us) {
  require(!samples_us.empty(), "a launch without samples");
  if (band_of(message_bytes) == Band::large) return mean_of(samples_us);
  std::vector<double> sorted(samples_us.begin(), samples_us.end());
  std::ranges::sort(sorted);
  return quantile_of_sorted(sorted, 0.5);
}

Estimate paired_estimate(std::span<const double> log_ratios) {
  require(log_ratios.size() >= 2, "an interval needs 2 blocks or more");
  const double count = static_cast<double>(log_ratios.size());
  return {mean_of(log_ratios), std::sqrt(variance_of(log_ratios) / count), count - 1};
}

Estimate welch_estimate(std::span<const double> log_a, std::span<const double> log_b) {
  require(log_a.size() >= 2 && log_b.size() >= 2, "an interval needs 2 launches a run or more");
  const double count_a = static_cast<double>(log_a.size());
  const double count_b = static_cast<double>(log_b.size());
  const double part_a = variance_of(log_a) / count_a;
  const double part_b = variance_of(log_b) / count_b;
  const double below = part_a * part_a / (count_a - 1) + part_b * part_b / (count_b - 1);
  const double degrees = below > 0 ? (part_a + part_b) * (part_a + part_b) / below : count_a + count_b - 2;
  return {mean_of(log_b) - mean_of(log_a), std::sqrt(part_a + part_b), degrees};
}

double p_value(const Estimate& estimate) {
  if (estimate.standard_error == 0) return estimate.mean == 0 ? 1 : 0;
  const double t = std::abs(estimate.mean) / estimate.standard_error;
  return 2 * boost::math::cdf(boost::math::complement(boost::math::students_t(estimate.degrees), t));
}

Interval interval(const Estimate& estimate, double confidence) {
  const double half = t_quantile(estimate.degrees, 0.5 + confidence / 2) * estimate.standard_error;
  return {estimate.mean - half, estimate.mean + half};
}

double bound_95(const Estimate& estimate) {
  return std::abs(estimate.mean) + t_quantile(estimate.degrees, 0.95) * estimate.standard_error;
}

double sign_flip_p(std::span<const double> log_ratios, std::uint64_t seed) {
  require(!log_ratios.empty(), "a sign-flip test of nothing");
  double sum = 0;
  double size = 0;
  for (const double value : log_ratios) {
    sum += value;
    size += std::abs(value);
  }
  // Sums that are equal but for rounding count as equal.
  const double bound = std::abs(sum) - size * 1e-12;
  if (bound <= 0) return 1;
  if (log_ratios.size() <= most_exact_flips) {
    // Every sum is one of the first half plus one of the second; both sorted, so pairs are counted in one
    // walk.
    const std::size_t half = log_ratios.size() / 2;
    const std::vector<double> first = signed_sums(log_ratios.first(half));
    const std::vector<double> second = signed_sums(log_ratios.subspan(half));
    std::uint64_t at_least = 0;
    std::size_t from = second.size();  // second[from..] reach the bound
    for (const double part : first) {
      while (from > 0 && part + second[from - 1] >= bound) --from;
      at_least += second.size() - from;
    }
    // The other tail is this one's mirror image.
    return std::min(
        1.0, 2 * static_cast<double>(at_least) / static_cast<double>(std::uint64_t{1} << log_ratios.size()));
  }
  std::mt19937_64 random(seed);
  int extreme = 1;  // the data themselves are one of the choices
  for (int flip = 0; flip < random_flips; ++flip) {
    double flipped = 0;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < log_ratios.size(); ++i) {
      if (i % 64 == 0) bits = random();
      flipped += (bits & 1) != 0 ? log_ratios[i] : -log_ratios[i];
      bits >>= 1;
    }
    if (std::abs(flipped) >= bound) ++extreme;
  }
  return static_cast<double>(extreme) / (random_flips + 1);
}

double hodges_lehmann(std::span<const double> log_ratios) {
  require(!log_ratios.empty(), "an estimate of nothing");
  std::vector<double> means;
  means.reserve(log_ratios.size() * (log_ratios.size() + 1) / 2);
  for (std::size_t i = 0; i < log_ratios.size(); ++i) {
    for (std::size_t j = i; j < log_ratios.size(); ++j) means.push_back((log_ratios[i] + log_ratios[j]) / 2);
  }
  std::ranges::sort(means);
  return quantile_of_sorted(means, 0.5);
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return p[i]; });
  std::vector<double> adjusted(p.size());
  double largest = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    largest = std::max(largest, std::min(1.0, p[order[rank]] * static_cast<double>(p.size() - rank)));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

std::vector<double> benjamini_hochberg(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return p[i]; });
  std::vector<double> adjusted(p.size());
  double least = 1;
  for (std::size_t rank = order.size(); rank-- > 0;) {
    least = std::min(least, p[order[rank]] * static_cast<double>(p.size()) / static_cast<double>(rank + 1));
    adjusted[order[rank]] = least;
  }
  return adjusted;
}

double smallest_detectable(const Estimate& estimate, double alpha, double power) {
  return (t_quantile(estimate.degrees, 1 - alpha / 2) + t_quantile(estimate.degrees, power)) *
         estimate.standard_error;
}

std::uint64_t blocks_for(double standard_deviation, double effect, double alpha, double power) {
  require(standard_deviation >= 0 && effect > 0, "a sample size needs a spread and an effect above 0");
  const double z = z_quantile(1 - alpha / 2);
  const double ratio = (z + z_quantile(power)) * standard_deviation / effect;
  const double blocks = std::ceil(ratio * ratio + z * z / 2);
  return blocks < static_cast<double>(most_more_blocks) ? static_cast<std::uint64_t>(blocks)
                                                        : most_more_blocks;
}

std::uint32_t fewest_blocks(double alpha) {
  std::uint32_t blocks = 2;
  while (2 / std::exp2(blocks) >= alpha) ++blocks;
  return blocks;
}

std::vector<Judgement> judge(std::span<const PairedSeries> cells, const Rules& rules) {
  return judge_paired(cells, rules, &PairedSeries::log_ratios, true);
}

std::vector<Judgement> judge_placebo(std::span<const PairedSeries> cells, const Rules& rules) {
  return judge_paired(cells, rules, &PairedSeries::placebo, false);
}

std::vector<Judgement> judge(std::span<const UnpairedSeries> cells, const Rules& rules) {
  std::vector<Standing> standings;
  struct Lists {
    std::vector<std::span<const double>> a;
    std::vector<std::span<const double>> b;
    std::vector<std::span<const double>> history;
  };
  std::map<BandKey, Lists> by_band;
  for (const UnpairedSeries& cell : cells) {
    const std::optional<Estimate> drift = drift_of(cell.history, rules.prior_drift);
    standings.push_back({.group = cell.group,
                         .bytes = cell.bytes,
                         .blocks = std::min(cell.log_a.size(), cell.log_b.size()),
                         .estimate = with_drift(welch_estimate(cell.log_a, cell.log_b), drift),
                         .sign_flip = {},
                         .hodges_lehmann = {},
                         .placebo = {},
                         .drift = drift});
    Lists& lists = by_band[{cell.group, band_of(cell.bytes)}];
    lists.a.emplace_back(cell.log_a);
    lists.b.emplace_back(cell.log_b);
    lists.history.emplace_back(cell.history);
  }
  std::map<BandKey, Estimate> bands;
  for (const auto& [key, lists] : by_band) {
    bands[key] = with_drift(welch_estimate(averaged(lists.a), averaged(lists.b)),
                            drift_of(averaged(lists.history), rules.prior_drift));
  }
  return judge_all(standings, bands, rules);
}

}  // namespace arb
