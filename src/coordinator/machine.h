// Which GPUs there are and which of them a run can use. Asked of a worker, so that a broken driver cannot
// hang or crash the coordinator.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "errors.h"
#include "tuning.h"
#include "worker_process.h"

namespace arb {

// The oldest driver API that the workers' calls exist in (edges with data, CUDA 12.3).
inline constexpr std::uint32_t oldest_cuda_driver = 12'030;

// What a worker without contexts says about this machine.
struct DriverFound {
  Hello hello;
  std::string problem;  // why no GPU can be used at all, one sentence without a full stop; empty when one can
};

// Starts a worker that only says hello. A worker that is lost or refuses becomes `problem`. Throws
// Interrupted.
DriverFound ask_driver(const std::filesystem::path& worker_program, const Interrupt* interrupt,
                       std::chrono::milliseconds deadline);

// The first `wanted` GPUs, by ordinal, that all reach each other directly; without `wanted` the largest such
// group (at most 8, the first of equals). Empty when not even 2 do.
std::vector<DeviceInfo> mutual_peers(const std::vector<DeviceInfo>& devices,
                                     std::optional<std::uint32_t> wanted);

// The GPUs of a run, or why there are none.
struct GpuChoice {
  std::vector<DeviceInfo> devices;
  std::string why_none;  // one clause: "there is 1 GPU and an allreduce needs 2"
};
// Throws UsageError when `wanted` (-g) asks for more GPUs than can be used, naming how many can. With `least`
// 1 a single GPU will do, for virtual ranks.
GpuChoice choose_gpus(const DriverFound& found, std::optional<std::uint32_t> wanted, std::uint32_t least = 2);

// The NUMA node that the kernel reports for a GPU; -1 where it reports none.
int numa_node_of(const DeviceInfo& device);
// What a tuning must fit: these GPUs in the order of their ranks.
MachineFingerprint fingerprint_of(const std::vector<DeviceInfo>& gpus);
// How many ranks an island has when rank r is on node nodes[r] and islands are runs of equal nodes of one length; 0 when
// the runs differ in length or a node is not known (-1).
std::uint32_t equal_runs(const std::vector<int>& nodes);

// "12.8" of 12080.
std::string cuda_version_text(std::uint32_t cuda_version);

}  // namespace arb
