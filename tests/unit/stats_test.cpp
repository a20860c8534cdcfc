#include "stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace arb {
namespace {

TEST(Stats, QuantilesInterpolateBetweenNeighbours) {
  const std::vector<double> sorted = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(quantile_of_sorted(sorted, 0), 1);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(sorted, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(sorted, 1), 4);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(std::vector<double>{7}, 0.99), 7);
}

TEST(Stats, PercentilesOfOneToHundred) {
  std::vector<double> samples(101);
  std::iota(samples.begin(), samples.end(), 1.0);  // 1..101: percentile p is p + 1
  std::shuffle(samples.begin(), samples.end(), std::mt19937(7));
  const Percentiles figures = percentiles_of(samples);
  EXPECT_DOUBLE_EQ(figures.p50_us, 51);
  EXPECT_DOUBLE_EQ(figures.p95_us, 96);
  EXPECT_DOUBLE_EQ(figures.p99_us, 100);
  EXPECT_DOUBLE_EQ(figures.min_us, 1);
}

TEST(Stats, PercentilesAreOrderedForAnySamples) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> times(1, 1);
  for (std::size_t count = 1; count < 60; ++count) {
    std::vector<double> samples(count);
    for (double& sample : samples) sample = times(random);
    const Percentiles figures = percentiles_of(samples);
    EXPECT_LE(figures.min_us, figures.p50_us);
    EXPECT_LE(figures.p50_us, figures.p95_us);
    EXPECT_LE(figures.p95_us, figures.p99_us);
  }
}

TEST(Stats, WhatIsNoTimeIsRefused) {
  EXPECT_THROW(percentiles_of({}), std::invalid_argument);
  for (const double bad :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(percentiles_of(std::vector<double>{1, bad}), std::invalid_argument);
  }
  EXPECT_THROW(quantile_of_sorted(std::vector<double>{1}, 1.5), std::invalid_argument);
}

}  // namespace
}  // namespace arb
