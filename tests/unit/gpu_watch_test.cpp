// What a run learns of its GPUs while it runs, from an NVML of our own: of two GPUs the second answers little.
#include "gpu_watch.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace arb {
namespace {

const std::vector<std::string> two = {"GPU-0", "GPU-1"};

std::string library(const std::string& folder) {
  return std::string(ARB_FAKES) + "/" + folder + "/libnvidia-ml.so.1";
}

class Watch : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("FAKE_SM_CLOCK"); }
};

TEST_F(Watch, ASteadyMachineIsNothingToRemarkOn) {
  GpuWatch watch(two, library("nvml-old"));
  watch.begin();
  const std::vector<GpuDuring> during = watch.end();
  ASSERT_EQ(during.size(), 2u);
  EXPECT_EQ(during[0].uuid, "GPU-0");
  EXPECT_EQ(during[0].sm_clock_mhz, 1980);
  EXPECT_EQ(during[0].memory_clock_mhz, 3201);
  EXPECT_EQ(during[0].events, std::vector<std::string>{});
  EXPECT_EQ(during[0].new_errors, 0u);
  EXPECT_EQ(during[0].temperature_c, 41);
  EXPECT_EQ(during[1].uuid, "GPU-1");
  EXPECT_FALSE(during[1].sm_clock_mhz || during[1].events || during[1].new_errors) << "unknown, not 0";
  EXPECT_FALSE(watch.throttled());
  EXPECT_TRUE(remarks_on(during).empty());
}

TEST_F(Watch, AClockThatFallsIsThrottledAndTold) {
  GpuWatch watch(two, library("nvml-old"));
  watch.begin();
  watch.end();
  ::setenv("FAKE_SM_CLOCK", "1900", 1);
  watch.end();
  EXPECT_FALSE(watch.throttled()) << "4% are no fall";
  ::setenv("FAKE_SM_CLOCK", "1410", 1);
  const std::vector<GpuDuring> during = watch.end();
  EXPECT_TRUE(watch.throttled());
  ASSERT_EQ(remarks_on(during).size(), 1u);
  EXPECT_EQ(remarks_on(during)[0], "the SM clock of rank 0's GPU was between 1410 and 1980 MHz");
  ::unsetenv("FAKE_SM_CLOCK");
  watch.look();
  EXPECT_TRUE(watch.throttled()) << "NVML is not asked again so soon";
  watch.end();
  EXPECT_FALSE(watch.throttled());
}

TEST_F(Watch, WhatHoldsAClockBackIsThrottledAndTold) {
  GpuWatch watch(two, library("nvml"));
  watch.begin();
  const std::vector<GpuDuring> during = watch.end();
  EXPECT_TRUE(watch.throttled());
  ASSERT_EQ(remarks_on(during).size(), 1u);
  EXPECT_EQ(remarks_on(during)[0],
            "rank 0's GPU was held back at times: sw_power_cap and sw_thermal_slowdown");
}

TEST_F(Watch, WithoutNvmlNothingIsKnown) {
  GpuWatch watch(two, "/nowhere/libnvidia-ml.so.1");
  watch.begin();
  watch.look();
  const std::vector<GpuDuring> during = watch.end();
  ASSERT_EQ(during.size(), 2u);
  EXPECT_FALSE(during[0].sm_clock_mhz);
  EXPECT_FALSE(watch.throttled());
  EXPECT_TRUE(remarks_on(during).empty());
}

}  // namespace
}  // namespace arb
