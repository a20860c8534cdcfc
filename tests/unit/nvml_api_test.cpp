#include "nvml_api/nvml.h"

#include <gtest/gtest.h>

#include <string>

#include "has.h"

namespace arb::nvml {
namespace {

using test::has;

const std::string fakes = ARB_FAKES;  // NOLINT(cert-err58-cpp)

TEST(Nvml, SaysWhatItCan) {
  const Session session(fakes + "/nvml/libnvidia-ml.so.1");
  const Snapshot snapshot = session.snapshot();
  EXPECT_EQ(snapshot.why, "");
  EXPECT_EQ(snapshot.driver, "580.82.07");
  EXPECT_EQ(snapshot.cuda_driver, "13.1");
  ASSERT_EQ(snapshot.devices.size(), 2U);
  Device expected;
  expected.index = 0;
  expected.name = "NVIDIA Fake";
  expected.uuid = "GPU-0";
  expected.sm_clock_mhz = 1980;
  expected.sm_clock_max_mhz = 2000;
  expected.memory_clock_mhz = 3201;
  expected.memory_clock_max_mhz = 3300;
  expected.clock_events = {"sw_power_cap", "sw_thermal_slowdown"};
  expected.temperature_c = 41;
  expected.power_w = 123.456;
  expected.pcie_generation = 1;
  expected.pcie_width_lanes = 8;
  expected.pcie_generation_max = 5;
  expected.pcie_width_max_lanes = 16;
  expected.nvlinks_active = 3;
  expected.nvlink_errors = 10;
  EXPECT_EQ(snapshot.devices.front(), expected);
  EXPECT_EQ(session.devices(), snapshot.devices);
}

TEST(Nvml, WhatItCannotSayIsAbsent) {
  const Snapshot snapshot = Session(fakes + "/nvml/libnvidia-ml.so.1").snapshot();
  ASSERT_EQ(snapshot.devices.size(), 2U);
  Device expected;
  expected.index = 1;
  expected.name = "NVIDIA Fake";
  expected.uuid = "GPU-1";
  EXPECT_EQ(snapshot.devices.back(), expected);
}

TEST(Nvml, PairsHaveTopologyAndStatus) {
  const Snapshot snapshot = Session(fakes + "/nvml/libnvidia-ml.so.1").snapshot();
  ASSERT_EQ(snapshot.pairs.size(), 2U);
  const Pair first{
      0, 1, "SYS", "ok", "chipset not supported", "GPU not supported", "IOH topology not supported"};
  EXPECT_EQ(snapshot.pairs.front(), first);
  const Pair second{1, 0, "SYS", {}, {}, {}, {}};
  EXPECT_EQ(snapshot.pairs.back(), second);
}

TEST(Nvml, AnOlderOneNamesThrottleReasonsOtherwise) {
  const Snapshot snapshot = Session(fakes + "/nvml-old/libnvidia-ml.so.1").snapshot();
  ASSERT_EQ(snapshot.devices.size(), 2U);
  ASSERT_TRUE(snapshot.devices.front().clock_events);
  EXPECT_TRUE(snapshot.devices.front().clock_events->empty());  // known: nothing holds the clocks
  EXPECT_FALSE(snapshot.devices.back().clock_events);           // not known
}

TEST(Nvml, WithoutOneASentenceSaysWhy) {
  const auto why = [](const std::string& library) {
    const Snapshot snapshot = Session(library).snapshot();
    EXPECT_EQ(snapshot, (Snapshot{snapshot.why, {}, {}, {}, {}}));
    return snapshot.why;
  };
  EXPECT_TRUE(has(why("/nowhere/libnvidia-ml.so.1"), "NVML cannot be loaded"));
  EXPECT_TRUE(has(why(fakes + "/nvml-broken/libnvidia-ml.so.1"), "nvmlInit_v2"));
  EXPECT_TRUE(has(why(fakes + "/nvml-no-driver/libnvidia-ml.so.1"), "Driver Not Loaded"));
}

TEST(Nvml, DecodesEveryReason) {
  EXPECT_TRUE(clock_event_words(0).empty());
  EXPECT_EQ(clock_event_words(0x1ff).size(), 9U);
  EXPECT_EQ(clock_event_words(0x1), std::vector<std::string>{"gpu_idle"});
  EXPECT_EQ(clock_event_words(0x88), (std::vector<std::string>{"hw_slowdown", "hw_power_brake_slowdown"}));
  EXPECT_EQ(clock_event_words(0x200), std::vector<std::string>{"reason_0x200"});
}

TEST(NvmlReal, ThisMachinesSnapshotIsWholeOrSaysWhy) {
  const Snapshot real = snapshot();
  if (!real.why.empty()) GTEST_SKIP() << real.why;
  EXPECT_TRUE(real.driver);
  EXPECT_EQ(real.pairs.size(), real.devices.size() * (real.devices.empty() ? 0 : real.devices.size() - 1));
  for (const Device& device : real.devices) EXPECT_TRUE(device.uuid);
}

}  // namespace
}  // namespace arb::nvml
