// Verdicts on made-up launches whose truth is known: drift over time, launches that differ, noisy iterations.
#include "verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>
#include <random>

namespace arb {
namespace {

// ln time of a launch = drift (a random walk over launches) + launch + median of iterations. Everything is a
// fraction: 0.01 = 1%.
struct Noise {
  double drift_step = 0.004;
  double launch = 0.01;
  double iteration = 0.01;
  int iterations = 11;
};

class Machine {
 public:
  Machine(const Noise& noise, std::uint64_t seed) : noise_(noise), random_(seed) {}

  // ln time of one fresh launch of something that is `effect` slower than 1 us.
  double launch(double effect) {
    drift_ += noise_.drift_step * normal_(random_);
    const double launch = effect + drift_ + noise_.launch * normal_(random_);
    std::array<double, 64> iterations{};
    const auto count = static_cast<std::size_t>(noise_.iterations);
    for (std::size_t i = 0; i < count; ++i) iterations[i] = launch + noise_.iteration * normal_(random_);
    std::nth_element(iterations.begin(), iterations.begin() + noise_.iterations / 2,
                     iterations.begin() + noise_.iterations);
    return iterations[count / 2];
  }

  // Blocks of A, B and A' in random order.
  PairedSeries blocks(std::uint32_t count, double effect, double placebo_effect = 0) {
    PairedSeries series{.group = "made_up", .bytes = 1024, .log_ratios = {}, .placebo = {}};
    std::array<std::size_t, 3> order = {0, 1, 2};
    for (std::uint32_t block = 0; block < count; ++block) {
      std::ranges::shuffle(order, random_);
      std::array<double, 3> times{};
      for (const std::size_t arm : order)
        times[arm] = launch(arm == 1 ? effect : arm == 2 ? placebo_effect : 0);
      series.log_ratios.push_back(times[1] - times[0]);
      series.placebo.push_back(times[2] - times[0]);
    }
    return series;
  }

  double normal() { return normal_(random_); }

 private:
  Noise noise_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  double drift_ = 0;
};

double share(int count, int of) {
  return static_cast<double>(count) / of;
}

TEST(Verdict, MeansMediansAndBands) {
  const std::vector<double> samples = {1, 2, 9};
  EXPECT_DOUBLE_EQ(launch_summary_us(1024, samples), 2);
  EXPECT_DOUBLE_EQ(launch_summary_us(4 << 20, samples), 4);
  EXPECT_THROW(launch_summary_us(1024, {}), std::invalid_argument);
  EXPECT_EQ(band_of(32 << 10), Band::small);
  EXPECT_EQ(band_of((32 << 10) + 1), Band::middle);
  EXPECT_EQ(band_of((4 << 20) - 1), Band::middle);
  EXPECT_EQ(band_of(4 << 20), Band::large);
}

TEST(Verdict, TheIntervalIsStudents) {
  // Worked by hand: mean 2, standard deviation 2, n = 4, t(3, 0.975) = 3.182446.
  const std::vector<double> differences = {0, 1, 2, 5};
  const Estimate estimate = paired_estimate(differences);
  EXPECT_DOUBLE_EQ(estimate.mean, 2);
  EXPECT_NEAR(estimate.standard_error, 2.160247 / 2, 1e-6);
  const Interval bounds = interval(estimate, 0.95);
  EXPECT_NEAR(bounds.low, 2 - 3.182446 * 2.160247 / 2, 1e-5);
  EXPECT_NEAR(bounds.high, 2 + 3.182446 * 2.160247 / 2, 1e-5);
  // p and the interval agree: at the confidence 1 - p the interval just touches 0.
  EXPECT_NEAR(interval(estimate, 1 - p_value(estimate)).low, 0, 1e-9);
  EXPECT_THROW(paired_estimate(std::vector<double>{1}), std::invalid_argument);
}

TEST(Verdict, BlocksThatAreAllAlike) {
  EXPECT_EQ(p_value(paired_estimate(std::vector<double>{0, 0, 0})), 1);
  EXPECT_EQ(p_value(paired_estimate(std::vector<double>{1, 1, 1})), 0);
  PairedSeries same{.group = "g", .bytes = 1024, .log_ratios = std::vector<double>(12, 0.0), .placebo = {}};
  EXPECT_EQ(judge(std::vector{same}, {}).front().verdict, Verdict::equivalent);
  same.log_ratios.assign(12, 0.05);
  EXPECT_EQ(judge(std::vector{same}, {}).front().verdict, Verdict::slower);
}

TEST(Verdict, WelchAgainstAWorkedExample) {
  const std::vector<double> a = {3, 4, 5};
  const std::vector<double> b = {6, 8, 10, 12};
  const Estimate estimate = welch_estimate(a, b);
  EXPECT_DOUBLE_EQ(estimate.mean, 5);
  EXPECT_NEAR(estimate.standard_error, std::sqrt(1.0 / 3 + 20.0 / 3 / 4), 1e-12);
  // (v1 + v2)^2 / (v1^2 / 2 + v2^2 / 3) with v1 = 1/3, v2 = 5/3.
  EXPECT_NEAR(estimate.degrees, 4.0 / (1.0 / 18 + 25.0 / 27), 1e-12);
}

// The quick way counts the same as trying every choice of signs.
TEST(Verdict, SignFlipsAreExact) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0.3, 1);
  for (std::size_t count = 1; count <= 13; ++count) {
    std::vector<double> values(count);
    for (double& value : values) value = normal(random);
    if (count > 4) values[1] = values[0];  // ties
    const double sum = std::abs(std::accumulate(values.begin(), values.end(), 0.0));
    int extreme = 0;
    for (std::uint32_t choice = 0; choice < (1u << count); ++choice) {
      double flipped = 0;
      for (std::size_t i = 0; i < count; ++i) flipped += (choice >> i & 1) != 0 ? values[i] : -values[i];
      if (std::abs(flipped) >= sum - 1e-12) ++extreme;
    }
    EXPECT_DOUBLE_EQ(sign_flip_p(values), share(extreme, 1 << count)) << count;
  }
  EXPECT_EQ(sign_flip_p(std::vector<double>{1, -1}), 1);
}

TEST(Verdict, ManySignFlipsAreDrawnFromASeed) {
  std::mt19937_64 random(8);
  std::normal_distribution<double> normal(0.4, 1);
  std::vector<double> values(40);
  for (double& value : values) value = normal(random);
  EXPECT_EQ(sign_flip_p(values, 3), sign_flip_p(values, 3));
  EXPECT_NEAR(sign_flip_p(values, 3), p_value(paired_estimate(values)), 0.02);
}

TEST(Verdict, HodgesLehmannIgnoresOneWildBlock) {
  const std::vector<double> tame = {1, 2, 3};
  EXPECT_DOUBLE_EQ(hodges_lehmann(tame), 2);
  std::vector<double> wild(11, 1.0);
  wild[3] = 1000;
  EXPECT_DOUBLE_EQ(hodges_lehmann(wild), 1);
}

// The usual worked example: four p-values.
TEST(Verdict, AdjustedPValues) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005};
  const std::vector<double> by_holm = holm(p);
  const std::vector<double> expected_holm = {0.03, 0.06, 0.06, 0.02};
  const std::vector<double> by_bh = benjamini_hochberg(p);
  const std::vector<double> expected_bh = {0.02, 0.04, 0.04, 0.02};
  for (std::size_t i = 0; i < p.size(); ++i) {
    EXPECT_NEAR(by_holm[i], expected_holm[i], 1e-12);
    EXPECT_NEAR(by_bh[i], expected_bh[i], 1e-12);
  }
  EXPECT_TRUE(holm({}).empty());
  EXPECT_EQ(benjamini_hochberg(std::vector<double>{0.9}).front(), 0.9);
}

TEST(Verdict, HowManyBlocks) {
  // ((1.959964 + 0.841621) * 2 / 2)^2 + 1.959964^2 / 2 = 9.77
  EXPECT_EQ(blocks_for(0.02, 0.02, 0.05), 10u);
  EXPECT_EQ(blocks_for(0, 0.02, 0.05), 2u);
  EXPECT_THROW(blocks_for(0.02, 0, 0.05), std::invalid_argument);
  EXPECT_EQ(fewest_blocks(0.05), 6u);
  EXPECT_EQ(fewest_blocks(alpha_of_two_looks), 7u);
}

// --- what the whole promises, on simulated machines --------------------------------------------------------

TEST(VerdictSimulated, AAgainstAAlarmsAsOftenAsItSays) {
  constexpr int trials = 20'000;
  Machine machine({}, 1);
  int alarms = 0;
  int flips = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const PairedSeries series = machine.blocks(12, 0);
    if (p_value(paired_estimate(series.log_ratios)) < 0.05) ++alarms;
    if (sign_flip_p(series.log_ratios) < 0.05) ++flips;
  }
  EXPECT_GE(share(alarms, trials), 0.04);
  EXPECT_LE(share(alarms, trials), 0.06);
  EXPECT_GE(share(flips, trials), 0.04);
  EXPECT_LE(share(flips, trials), 0.06);
}

// Why launches are interleaved: ten of A and then ten of B take drift for a difference.
TEST(VerdictSimulated, RunsOneAfterTheOtherAlarmTooOften) {
  constexpr int trials = 2'000;
  Machine machine({}, 2);
  int alarms = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> a(10);
    std::vector<double> b(10);
    for (double& time : a) time = machine.launch(0);
    for (double& time : b) time = machine.launch(0);
    if (p_value(welch_estimate(a, b)) < 0.05) ++alarms;
  }
  EXPECT_GT(share(alarms, trials), 0.2);
}

TEST(VerdictSimulated, PowerIsWhatTheoryGives) {
  constexpr int trials = 5'000;
  constexpr int blocks = 12;
  // Without drift the spread of a block's difference is known: launches and medians of both arms.
  const Noise noise{.drift_step = 0, .launch = 0.015, .iteration = 0.01, .iterations = 1};
  const double sd = std::sqrt(2 * (0.015 * 0.015 + 0.01 * 0.01));
  const double critical = boost::math::quantile(boost::math::students_t(blocks - 1), 0.975);
  Machine machine(noise, 3);
  for (const double effect : {0.01, 0.02, 0.03}) {
    int found = 0;
    for (int trial = 0; trial < trials; ++trial) {
      if (p_value(paired_estimate(machine.blocks(blocks, effect).log_ratios)) < 0.05) ++found;
    }
    const boost::math::non_central_t theory(blocks - 1, effect / sd * std::sqrt(blocks));
    const double power =
        boost::math::cdf(boost::math::complement(theory, critical)) + boost::math::cdf(theory, -critical);
    EXPECT_NEAR(share(found, trials), power, 0.02) << effect;
  }
}

// Five contenders over 17 sizes that share the noise of their launches: the worst case of many cells.
TEST(VerdictSimulated, ManyCellsKeepTheFamilyWiseError) {
  constexpr int trials = 1'000;
  constexpr std::uint32_t blocks = 12;
  Machine machine({}, 4);
  int comparisons_with_an_alarm = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<PairedSeries> cells;
    for (int contender = 0; contender < 5; ++contender) {
      const PairedSeries launches = machine.blocks(blocks, 0);
      for (int size = 0; size < 17; ++size) {
        PairedSeries cell{.group = std::to_string(contender),
                          .bytes = 1024ull << size,
                          .log_ratios = launches.log_ratios,
                          .placebo = launches.placebo};
        for (double& ratio : cell.log_ratios) ratio += 0.01 * machine.normal();
        for (double& ratio : cell.placebo) ratio += 0.01 * machine.normal();
        cells.push_back(std::move(cell));
      }
    }
    bool alarm = false;
    // Stricter than the verdict: the margin is left out.
    for (const Judgement& judgement : judge(cells, {})) alarm = alarm || judgement.q < 0.05;
    if (alarm) ++comparisons_with_an_alarm;
  }
  EXPECT_LE(share(comparisons_with_an_alarm, trials), 0.05);
  EXPECT_GE(share(comparisons_with_an_alarm, trials), 0.005) << "a test that never alarms finds nothing";
}

// However noisy the machine: what A differs from its placebo by makes nothing EQUIVALENT.
TEST(VerdictSimulated, EquivalentIsRareWhereTheEffectEqualsTheMargin) {
  constexpr int trials = 10'000;
  for (const double launch : {0.004, 0.015, 0.07}) {
    Machine machine({.drift_step = 0.002, .launch = launch, .iteration = 0.01, .iterations = 5}, 5);
    int equivalent = 0;
    for (int trial = 0; trial < trials; ++trial) {
      const PairedSeries series = machine.blocks(12, std::log1p(0.02));
      if (judge(std::vector{series}, {}).front().verdict == Verdict::equivalent) ++equivalent;
    }
    EXPECT_LE(share(equivalent, trials), 0.05) << launch;
  }
}

TEST(VerdictSimulated, APlantedThreePercentIsSlowerAndNothingIsEquivalent) {
  constexpr int trials = 500;
  Machine machine({.drift_step = 0.002, .launch = 0.005, .iteration = 0.01, .iterations = 11}, 6);
  int slower = 0;
  int faster = 0;
  int same = 0;
  for (int trial = 0; trial < trials; ++trial) {
    slower += judge(std::vector{machine.blocks(12, 0.03)}, {}).front().verdict == Verdict::slower;
    faster += judge(std::vector{machine.blocks(12, -0.03)}, {}).front().verdict == Verdict::faster;
    same += judge(std::vector{machine.blocks(12, 0)}, {}).front().verdict == Verdict::equivalent;
  }
  EXPECT_GT(share(slower, trials), 0.95);
  EXPECT_GT(share(faster, trials), 0.95);
  EXPECT_GT(share(same, trials), 0.9);
}

// Two looks at half the alarm rate each: together no more than 5%.
TEST(VerdictSimulated, APlannedExtensionKeepsTheAlarmRate) {
  constexpr int trials = 4'000;
  Machine machine({}, 9);
  int alarms = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const PairedSeries whole = machine.blocks(24, 0);
    const std::span<const double> all(whole.log_ratios);
    const bool first = p_value(paired_estimate(all.first(12))) < alpha_of_two_looks;
    if (first || p_value(paired_estimate(all)) < alpha_of_two_looks) ++alarms;
  }
  EXPECT_LE(share(alarms, trials), 0.05);
}

// --- single rules of the verdict ---------------------------------------------------------------------------

PairedSeries series_of(std::vector<double> ratios, std::uint64_t bytes = 1024, double placebo = 0) {
  PairedSeries series{.group = "g", .bytes = bytes, .log_ratios = std::move(ratios), .placebo = {}};
  for (std::size_t i = 0; i < series.log_ratios.size(); ++i)
    series.placebo.push_back(i % 2 == 0 ? placebo : -placebo);
  return series;
}
// Blocks around `mean` that deviate by `spread` to both sides.
std::vector<double> around(double mean, double spread, std::size_t blocks = 12) {
  std::vector<double> values(blocks);
  for (std::size_t i = 0; i < blocks; ++i) values[i] = mean + (i % 2 == 0 ? spread : -spread);
  return values;
}

TEST(VerdictRules, ASignificantDifferenceBelowTheMarginIsEquivalent) {
  const Judgement small = judge(std::vector{series_of(around(0.01, 0.005))}, {}).front();
  EXPECT_LT(small.q, 0.05);
  EXPECT_EQ(small.verdict, Verdict::equivalent);
  EXPECT_NEAR(small.margin, 0.02, 1e-12);
  // The same at a size where bandwidth counts and 1% is the margin.
  const Judgement large = judge(std::vector{series_of(around(0.0101, 0.005), 4 << 20)}, {}).front();
  EXPECT_NEAR(large.margin, 0.01, 1e-12);
  EXPECT_EQ(large.verdict, Verdict::slower);
}

TEST(VerdictRules, ANoisyPlaceboRaisesWhatIsADifferenceAndNotWhatIsNone) {
  const Judgement judgement = judge(std::vector{series_of(around(0.03, 0.005), 1024, 0.08)}, {}).front();
  EXPECT_LT(judgement.q, 0.05);
  EXPECT_GT(*judgement.placebo_bound, 0.04);
  EXPECT_NEAR(judgement.margin, 0.02, 1e-12);
  EXPECT_EQ(judgement.verdict, Verdict::inconclusive);
  // Of the same spread so many blocks bring the placebo's bound below the difference.
  ASSERT_TRUE(judgement.more_blocks.has_value());
  const auto blocks = 12 + *judgement.more_blocks;
  const PairedSeries later = series_of(around(0.03, 0.005, blocks + blocks % 2), 1024, 0.08);
  EXPECT_EQ(judge(std::vector{later}, {}).front().verdict, Verdict::slower);
  // A placebo that is off by more than the difference stays so.
  PairedSeries off = series_of(around(0.03, 0.005));
  off.placebo = around(0.04, 0.005);
  EXPECT_EQ(judge(std::vector{off}, {}).front().verdict, Verdict::inconclusive);
  EXPECT_FALSE(judge(std::vector{off}, {}).front().more_blocks.has_value());
}

TEST(VerdictRules, EquivalenceHoldsForHodgesLehmannToo) {
  // One wild block pulls the mean to nothing; without it the blocks lie at 1.2%.
  std::vector<double> ratios(12, 0.012);
  ratios[5] = -0.1;
  const Interval inner = interval(paired_estimate(ratios), 0.9);
  ASSERT_GT(inner.low, -std::log1p(0.02));
  ASSERT_LT(inner.high, std::log1p(0.02));
  const Judgement judgement = judge(std::vector{series_of(ratios)}, {}).front();
  EXPECT_FALSE(judgement.tests_disagree);
  EXPECT_EQ(judgement.verdict, Verdict::inconclusive);
}

TEST(VerdictRules, SizesOfABandThatFellAreAdjustedAmongThemselves) {
  // The first size carries the band, the second is significant alone, the others are nothing.
  const std::vector<double> means = {0.05, 0.0068, 0.001, -0.001, 0.0005, -0.0005};
  std::vector<PairedSeries> cells;
  for (std::size_t size = 0; size < means.size(); ++size)
    cells.push_back(series_of(around(means[size], size == 0 ? 0.001 : 0.01), 1024ull << size));
  const std::vector<Judgement> judgements = judge(cells, {});
  std::vector<double> p;
  for (const Judgement& judgement : judgements) p.push_back(judgement.p);
  const std::vector<double> adjusted = benjamini_hochberg(p);
  for (std::size_t size = 0; size < means.size(); ++size)
    EXPECT_DOUBLE_EQ(judgements[size].q, std::max(adjusted[size], judgements[size].band_q));
  EXPECT_LT(judgements[0].q, 0.05);
  EXPECT_LT(judgements[1].p, 0.05);
  EXPECT_LT(judgements[1].band_q, 0.05);
  EXPECT_GT(judgements[1].q, 0.05);
}

TEST(VerdictRules, TheSmallestDetectableEffectIsFoundInFourOfFive) {
  // (t(11, 0.975) + t(11, 0.8)) x 0.01
  EXPECT_NEAR(smallest_detectable({.mean = 0, .standard_error = 0.01, .degrees = 11}, 0.05), 0.0307652, 1e-6);
  const Judgement judgement = judge(std::vector{series_of(around(0, 0.01))}, {}).front();
  EXPECT_NEAR(judgement.mde, std::expm1(3.07652 * 0.01 / std::sqrt(11)), 1e-6);
}

TEST(VerdictRules, MoreBlocksCountWhatAdjustingCosts) {
  // One band among twenty: p of 0.01 is adjusted to 0.2.
  std::vector<PairedSeries> cells = {series_of(around(0.03, 0.03))};
  for (int group = 1; group < 20; ++group) {
    cells.push_back(series_of(around(0, 0.03)));
    cells.back().group = std::to_string(group);
  }
  const Judgement judgement = judge(cells, {}).front();
  EXPECT_LT(judgement.p, 0.05);
  EXPECT_EQ(judgement.verdict, Verdict::inconclusive);
  EXPECT_NEAR(judgement.q, 20 * judgement.p, 1e-12);
  ASSERT_TRUE(judgement.more_blocks.has_value());
  const auto blocks = 12 + *judgement.more_blocks;
  for (PairedSeries& cell : cells)
    cell = {.group = cell.group,
            .bytes = 1024,
            .log_ratios = around(0, 0.03, blocks + blocks % 2),
            .placebo = {}};
  cells.front().log_ratios = around(0.03, 0.03, blocks + blocks % 2);
  EXPECT_EQ(judge(cells, {}).front().verdict, Verdict::slower);
}

TEST(VerdictRules, InconclusiveSaysWhatWouldHelp) {
  const Judgement judgement = judge(std::vector{series_of(around(0.01, 0.03))}, {}).front();
  EXPECT_EQ(judgement.verdict, Verdict::inconclusive);
  EXPECT_GT(judgement.mde, 0.02);
  ASSERT_TRUE(judgement.more_blocks.has_value());
  // As many blocks of the same spread settle it.
  const auto blocks = 12 + *judgement.more_blocks;
  const Judgement later = judge(std::vector{series_of(around(0.01, 0.03, blocks + blocks % 2))}, {}).front();
  EXPECT_EQ(later.verdict, Verdict::equivalent);
}

TEST(VerdictRules, TestsThatDisagreeSettleNothing) {
  // Five blocks far off and one near nothing: t is sure, 2/2^6 is the least that sign flips can say.
  PairedSeries few = series_of(around(0.05, 0.001, 5));
  const Judgement judgement = judge(std::vector{few}, {}).front();
  EXPECT_LT(judgement.p, 0.05);
  EXPECT_GT(*judgement.sign_flip, 0.05);
  EXPECT_TRUE(judgement.tests_disagree);
  EXPECT_EQ(judgement.verdict, Verdict::inconclusive);
}

TEST(VerdictRules, OneSizeOfABandThatStandsIsNotCalledDifferent) {
  std::vector<PairedSeries> cells;
  for (int size = 0; size < 5; ++size) {
    // Alternating signs: the band's mean stays at 0, one size alone would be significant.
    cells.push_back(series_of(around(size % 2 == 0 ? 0.03 : -0.045, 0.02), 1024ull << size));
  }
  for (const Judgement& judgement : judge(cells, {})) {
    EXPECT_GE(judgement.q, 0.05);
    EXPECT_NE(judgement.verdict, Verdict::slower);
    EXPECT_NE(judgement.verdict, Verdict::faster);
  }
}

TEST(VerdictRules, HistoryWidensUnpairedIntervals) {
  UnpairedSeries series{
      .group = "g", .bytes = 1024, .log_a = {0, 0.001, -0.001}, .log_b = {0.03, 0.031, 0.029}, .history = {}};
  EXPECT_EQ(judge(std::vector{series}, {}).front().verdict, Verdict::slower);
  // Nights that differ by 3% or so make 3% nothing to report, and more launches of these two would not help.
  series.history = {0, 0.03, -0.03, 0.02, -0.02, 0.01};
  const Judgement drifting = judge(std::vector{series}, {}).front();
  EXPECT_EQ(drifting.verdict, Verdict::inconclusive);
  EXPECT_FALSE(drifting.more_blocks.has_value());
  // Four nights do not show it yet.
  series.history.resize(4);
  EXPECT_EQ(judge(std::vector{series}, {}).front().verdict, Verdict::slower);
}

TEST(VerdictRules, APriorStandsInForAHistoryThatIsTooShort) {
  UnpairedSeries series{.group = "g",
                        .bytes = 1024,
                        .log_a = {0, 0.001, -0.001},
                        .log_b = {0.03, 0.031, 0.029},
                        .history = {0, 0}};
  Rules rules;
  rules.prior_drift = 0.01;
  EXPECT_EQ(judge(std::vector{series}, rules).front().verdict, Verdict::slower);  // 2.1 standard deviations
  rules.prior_drift = 0.02;
  EXPECT_EQ(judge(std::vector{series}, rules).front().verdict, Verdict::inconclusive);
  series.history = {0, 0.001, -0.001, 0.001, 0};  // it shows: the prior has had its day
  EXPECT_EQ(judge(std::vector{series}, rules).front().verdict, Verdict::slower);
}

// A machine's nights as scripts/nightly.sh and `compare --history` treat them: compared with the middle one of the last
// seven good nights; a lone bad night counts as drift once a good one has followed.
class ManyNights {
 public:
  ManyNights(double night_sd, std::uint64_t seed) : night_sd_(night_sd), random_(seed) {}

  // Whether the night is SLOWER. Half of what nights differ by is the machine's, half each cell's own.
  bool is_alarm(double effect) {
    std::normal_distribution<double> normal;
    std::vector<double> night;
    const double common = night_sd_ * std::sqrt(0.5) * normal(random_);
    for (int cell = 0; cell < cells; ++cell)
      night.push_back(effect + common + night_sd_ * std::sqrt(0.5) * normal(random_));
    bool alarm = false;
    if (!good_.empty()) {
      std::vector<UnpairedSeries> series;
      for (int cell = 0; cell < cells; ++cell) {
        series.push_back({.group = std::to_string(cell / 17),
                          .bytes = 1024ull << (cell % 17),
                          .log_a = launches(baseline()[static_cast<std::size_t>(cell)]),
                          .log_b = launches(night[static_cast<std::size_t>(cell)]),
                          .history = {}});
        for (const auto& earlier : drift_)
          series.back().history.push_back(earlier[static_cast<std::size_t>(cell)]);
      }
      Rules rules;
      rules.prior_drift = 0.01;
      alarm = std::ranges::count(judge(series, rules), Verdict::slower, &Judgement::verdict) > 0;
    }
    doubtful_.push_back(night);
    if (alarm) return true;
    good_.push_back(night);
    drift_.insert(drift_.end(), doubtful_.size() > 2 ? doubtful_.end() - 1 : doubtful_.begin(),
                  doubtful_.end());
    doubtful_.clear();
    return false;
  }

 private:
  static constexpr int cells = 85;
  static double mean(const std::vector<double>& night) {
    return std::accumulate(night.begin(), night.end(), 0.0) / cells;
  }
  [[nodiscard]] std::vector<double> baseline() const {
    std::vector<std::vector<double>> last(
        good_.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(good_.size(), 7)), good_.end());
    std::ranges::sort(last, {}, mean);
    return last[(last.size() - 1) / 2];
  }
  std::vector<double> launches(double middle) {
    std::normal_distribution<double> normal(middle, 0.002);
    std::vector<double> five(5);
    for (double& launch : five) launch = normal(random_);
    return five;
  }

  double night_sd_;
  std::mt19937_64 random_;
  std::vector<std::vector<double>> good_;
  std::vector<std::vector<double>> drift_;
  std::vector<std::vector<double>> doubtful_;
};

TEST(Nights, DoNotAlarmWithoutCauseAndDoWithOne) {
  for (const double night_sd : {0.002, 0.005, 0.01, 0.02}) {
    int alarms = 0;
    int found = 0;
    int still_found = 0;
    int found_again = 0;
    constexpr int boxes = 12;
    constexpr int nights = 40;
    for (int box = 0; box < boxes; ++box) {
      ManyNights machine(night_sd, static_cast<std::uint64_t>(box) + 1);
      for (int night = 0; night < nights; ++night) alarms += machine.is_alarm(0) ? 1 : 0;
      // A step of 8 night-to-night deviations, which lasts.
      const double step = 8 * std::max(night_sd, 0.005);
      found += machine.is_alarm(step) ? 1 : 0;
      for (int night = 0; night < 9; ++night) still_found += machine.is_alarm(step) ? 1 : 0;
      // Gone and back: it was no drift.
      for (int night = 0; night < 5; ++night) machine.is_alarm(0);
      found_again += machine.is_alarm(step) ? 1 : 0;
    }
    EXPECT_LE(alarms, boxes * nights * 5 / 100) << night_sd;
    EXPECT_GE(found, boxes - 1) << night_sd;
    EXPECT_GE(still_found, (boxes - 1) * 9) << night_sd;
    EXPECT_GE(found_again, boxes - 1) << night_sd;
  }
}

TEST(VerdictRules, TwoRunsDifferBySqrtTwoOfWhatNightsVaryBy) {
  UnpairedSeries series{.group = "g",
                        .bytes = 1024,
                        .log_a = {0, 0.001, -0.001},
                        .log_b = {0.03, 0.031, 0.029},
                        .history = {-0.02, -0.01, 0, 0.01, 0.02}};
  const Judgement judgement = judge(std::vector{series}, {}).front();
  // t(4, 0.975) x sqrt(2) x 0.0158114
  EXPECT_NEAR(std::log1p(judgement.ci_high), 0.03 + 0.0620832, 1e-6);
  // A band of one size is as uncertain as that size.
  EXPECT_DOUBLE_EQ(judgement.band_q, judgement.p);
  EXPECT_GT(judgement.p, 0.05);
}

TEST(VerdictRules, WhereDriftIsNotYetTheWiderItCanStillBeWhatIsLeft) {
  UnpairedSeries series{.group = "g",
                        .bytes = 1024,
                        .log_a = {0, 0.05, -0.05},
                        .log_b = {0, 0.05, -0.05},
                        .history = {-0.02, -0.01, 0, 0.01, 0.02}};
  EXPECT_FALSE(judge(std::vector{series}, {}).front().more_blocks.has_value());
  series.history = {-0.002, -0.001, 0, 0.001, 0.002};
  EXPECT_TRUE(judge(std::vector{series}, {}).front().more_blocks.has_value());
}

TEST(VerdictRules, ThePlaceboIsJudgedLikeAnArm) {
  PairedSeries series = series_of(around(0, 0.001));
  series.placebo = around(0.05, 0.001);
  EXPECT_EQ(judge_placebo(std::vector{series}, {}).front().verdict, Verdict::slower);
  series.placebo.clear();
  EXPECT_TRUE(judge_placebo(std::vector{series}, {}).empty());
}

}  // namespace
}  // namespace arb
