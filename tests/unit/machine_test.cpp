#include "coordinator/machine.h"

#include <gtest/gtest.h>

namespace arb {
namespace {

// `groups[i]` is the island of device i: devices of one island reach each other.
DriverFound found_with(const std::vector<int>& groups) {
  DriverFound found;
  found.hello.cuda_driver = 13'000;
  for (std::uint32_t i = 0; i < groups.size(); ++i) {
    DeviceInfo device;
    device.ordinal = i;
    for (std::uint32_t j = 0; j < groups.size(); ++j) {
      if (i != j && groups[i] == groups[j]) device.peers.push_back(j);
    }
    found.hello.devices.push_back(device);
  }
  return found;
}

std::vector<std::uint32_t> ordinals(const GpuChoice& choice) {
  std::vector<std::uint32_t> list;
  for (const DeviceInfo& device : choice.devices) list.push_back(device.ordinal);
  return list;
}

std::string refusal(const DriverFound& found, std::uint32_t wanted) {
  try {
    choose_gpus(found, wanted);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Machine, TakesAllThatReachEachOther) {
  EXPECT_EQ(ordinals(choose_gpus(found_with({0, 0, 0, 0}), {})), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(ordinals(choose_gpus(found_with({0, 1, 1, 1, 0}), {})), (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(ordinals(choose_gpus(found_with({0, 1, 1, 1, 0}), 2)), (std::vector<std::uint32_t>{0, 4}));
  EXPECT_EQ(choose_gpus(found_with(std::vector<int>(16, 0)), {}).devices.size(), 8u)
      << "kernels are made for 8";
}

TEST(Machine, FewerThanTwoGpusIsAReasonToEmulate) {
  EXPECT_NE(choose_gpus(found_with({}), {}).why_none.find("0 GPUs"), std::string::npos);
  EXPECT_NE(choose_gpus(found_with({0}), {}).why_none.find("is 1 GPU"), std::string::npos);
  EXPECT_NE(choose_gpus(found_with({0, 1}), {}).why_none.find("P2P"), std::string::npos);
  DriverFound broken = found_with({0, 0});
  broken.problem = "no driver";
  EXPECT_EQ(choose_gpus(broken, {}).why_none, "no driver");
}

TEST(Machine, MoreGpusThanThereAreIsAUsageError) {
  EXPECT_NE(refusal(found_with({0, 0}), 9).find("2 GPUs can be used"), std::string::npos);
  EXPECT_NE(refusal(found_with({0, 0}), 4).find("take -g 2"), std::string::npos);
  EXPECT_NE(refusal(found_with({0, 0}), 1).find("2 GPUs or more"), std::string::npos);
  EXPECT_EQ(refusal(found_with({0, 0}), 2), "");
  // Where none can be had, the machine is at fault and not the number.
  try {
    choose_gpus(found_with({0}), 2);
    ADD_FAILURE();
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("--emulate --ranks 2"), std::string::npos) << error.what();
  }
}

TEST(Machine, VersionsAreDecodedRightly) {
  EXPECT_EQ(cuda_version_text(12'080), "12.8");
  EXPECT_EQ(cuda_version_text(13'000), "13.0");
  EXPECT_EQ(cuda_version_text(12'030), "12.3");
}

TEST(Islands, AreRunsOfOneNodeAndOneLength) {
  EXPECT_EQ(equal_runs({0, 0, 0, 0, 1, 1, 1, 1}), 4u);
  EXPECT_EQ(equal_runs({0, 0, 1, 1, 2, 2}), 2u);
  EXPECT_EQ(equal_runs({0, 0}), 2u);
  EXPECT_EQ(equal_runs({0, 1, 0, 1}), 1u);
  EXPECT_EQ(equal_runs({0, 0, 0, 1}), 0u);
  EXPECT_EQ(equal_runs({-1, -1, -1, -1}), 0u);
  EXPECT_EQ(equal_runs({}), 0u);
}

}  // namespace
}  // namespace arb
