// "Is B faster than A?": from times of launches to verdicts. Pure functions; the replicate is the launch,
// never an iteration inside one. Everything is computed on natural logarithms of times, because launches
// differ by factors; what is reported are fractions (0.03 = 3% slower).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace arb {

enum class Verdict : std::uint8_t { faster, slower, equivalent, inconclusive };
constexpr std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "FASTER";
    case Verdict::slower:
      return "SLOWER";
    case Verdict::equivalent:
      return "EQUIVALENT";
    case Verdict::inconclusive:
      break;
  }
  return "INCONCLUSIVE";
}

// Sizes that behave alike: start-up dominates, neither dominates, bandwidth dominates.
enum class Band : std::uint8_t { small, middle, large };
inline constexpr std::uint64_t small_band_to_bytes = 32 << 10;
inline constexpr std::uint64_t large_band_from_bytes = 4 << 20;
constexpr Band band_of(std::uint64_t message_bytes) {
  return message_bytes <= small_band_to_bytes    ? Band::small
         : message_bytes < large_band_from_bytes ? Band::middle
                                                 : Band::large;
}
constexpr std::string_view name_of(Band band) {
  return band == Band::small ? "up to 32K" : band == Band::middle ? "32K to 4M" : "from 4M";
}

// What one launch says about a cell, in microseconds a call: the median below 4 MiB; from there on total time
// over calls, so that bytes over it is total bytes over total time. Throws std::invalid_argument on no
// samples.
double launch_summary_us(std::uint64_t message_bytes, std::span<const double> samples_us);

// --- estimates and tests
// ------------------------------------------------------------------------------------

struct Interval {
  double low = 0;
  double high = 0;
};

// A mean of log ratios with what its interval needs.
struct Estimate {
  double mean = 0;
  double standard_error = 0;
  double degrees = 1;  // of freedom, of Student's t
};
// The mean of paired differences. Throws std::invalid_argument on fewer than 2.
Estimate paired_estimate(std::span<const double> log_ratios);
// mean(b) - mean(a) of two independent sets, Welch. Throws std::invalid_argument where one has fewer than 2.
Estimate welch_estimate(std::span<const double> log_a, std::span<const double> log_b);
// Two-sided p of "the mean is 0".
double p_value(const Estimate& estimate);
Interval interval(const Estimate& estimate, double confidence);
// The bound that |true mean| stays below with confidence 0.95.
double bound_95(const Estimate& estimate);

// Two-sided sign-flip test of "the differences are symmetric around 0": exact up to 24 differences, beyond
// that 19,999 random flips drawn from `seed`.
double sign_flip_p(std::span<const double> log_ratios, std::uint64_t seed = 1);
// The median of all pairwise means: an estimate that one wild block cannot move.
double hodges_lehmann(std::span<const double> log_ratios);

// Adjusted p-values in the order given: family-wise error (Holm), false discovery rate (Benjamini-Hochberg).
std::vector<double> holm(std::span<const double> p);
std::vector<double> benjamini_hochberg(std::span<const double> p);

inline constexpr double default_power = 0.8;
// The least true effect that a two-sided test at `alpha` finds with probability `power`.
double smallest_detectable(const Estimate& estimate, double alpha, double power = default_power);
// n = ((z + z') s / d)^2 + z^2 / 2, rounded up: blocks that find an effect of d where differences have
// standard deviation s.
std::uint64_t blocks_for(double standard_deviation, double effect, double alpha,
                         double power = default_power);

// --- verdicts over many cells
// -------------------------------------------------------------------------------

struct Rules {
  double alpha = 0.05;             // of one look; 0.025 where an extension is planned
  double latency_margin = 0.02;    // a fraction, below 4 MiB
  double bandwidth_margin = 0.01;  // from 4 MiB on
  std::uint64_t seed = 1;          // of random sign flips
  // Standard deviation between two runs of the same thing, a fraction, that is taken for true while too few earlier runs
  // show it; 0: none is.
  double prior_drift = 0;
};
inline constexpr double alpha_of_two_looks = 0.025;
// Fewer blocks can never be significant by sign flips: 2 / 2^n must lie below alpha.
std::uint32_t fewest_blocks(double alpha);

// One cell's launches, block by block.
struct PairedSeries {
  std::string group;  // cells of one group and band are tested together: contender, dtype, mode
  std::uint64_t bytes = 0;
  std::vector<double> log_ratios;  // ln B - ln A
  std::vector<double> placebo;     // ln A' - ln A; empty: there was no placebo
};

// Fewer earlier runs do not show how far runs differ.
inline constexpr std::size_t fewest_history_runs = 5;

// One cell's launches in two independent runs.
struct UnpairedSeries {
  std::string group;
  std::uint64_t bytes = 0;
  std::vector<double> log_a;
  std::vector<double> log_b;
  std::vector<double> history;  // ln of the cell's time in earlier runs of the same baseline, one a run
};

// Changes and bounds are fractions: exp(mean) - 1.
struct Judgement {
  Verdict verdict = Verdict::inconclusive;
  std::uint64_t blocks = 0;  // of pairs; of launches of the smaller run when unpaired
  double log_change = 0;
  double change = 0;
  double ci_low = 0;  // with confidence 1 - alpha
  double ci_high = 0;
  double p = 1;                            // of this cell alone
  std::optional<double> sign_flip{};       // the same by sign flips; empty when unpaired
  std::optional<double> hodges_lehmann{};  // a fraction; empty when unpaired
  double band_q = 1;                       // of its group and band, Holm over all of them
  double q = 1;                            // adjusted: what the verdict rests on
  double margin = 0;                       // below it a difference does not matter
  std::optional<double> placebo_bound{};   // a fraction; FASTER and SLOWER need that much where it is larger
  double mde = 0;                          // smallest detectable effect here, a fraction
  bool tests_disagree = false;             // t and sign flips lie on different sides of alpha
  // INCONCLUSIVE: what would settle it if the estimate stays; empty where no number would, because earlier runs, or A
  // and its placebo, differ by too much.
  std::optional<std::uint64_t> more_blocks{};
};

// Verdicts by the rules of docs/comparing.md. Throws std::invalid_argument where a series has fewer than 2
// values or the two lists of a series differ in length.
std::vector<Judgement> judge(std::span<const PairedSeries> cells, const Rules& rules);
std::vector<Judgement> judge(std::span<const UnpairedSeries> cells, const Rules& rules);
// The same verdicts on the placebo alone (A' against A); cells without a placebo are left out.
std::vector<Judgement> judge_placebo(std::span<const PairedSeries> cells, const Rules& rules);

}  // namespace arb
