#include "machine.h"

#include <arb/abi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <utility>

namespace arb {
namespace {

bool reach(const DeviceInfo& a, const DeviceInfo& b) {
  return std::ranges::find(a.peers, b.ordinal) != a.peers.end() &&
         std::ranges::find(b.peers, a.ordinal) != b.peers.end();
}

// Extends `group` by devices from `next` on to `size` mutual peers; the first way found is the first by
// ordinal.
bool extend(const std::vector<DeviceInfo>& devices, std::size_t next, std::size_t size,
            std::vector<DeviceInfo>& group) {
  if (group.size() == size) return true;
  for (std::size_t i = next; i < devices.size(); ++i) {
    if (!std::ranges::all_of(group, [&](const DeviceInfo& member) { return reach(member, devices[i]); }))
      continue;
    group.push_back(devices[i]);
    if (extend(devices, i + 1, size, group)) return true;
    group.pop_back();
  }
  return false;
}

}  // namespace

int numa_node_of(const DeviceInfo& device) {
  std::string address = device.pci_address;
  std::ranges::transform(address, address.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream file("/sys/bus/pci/devices/" + address + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

MachineFingerprint fingerprint_of(const std::vector<DeviceInfo>& gpus) {
  MachineFingerprint found;
  for (const DeviceInfo& gpu : gpus) {
    found.gpus.push_back(gpu.name);
    found.numa_nodes.push_back(numa_node_of(gpu));
    std::vector<std::uint32_t> peers;
    for (std::uint32_t rank = 0; rank < gpus.size(); ++rank) {
      if (std::ranges::find(gpu.peers, gpus[rank].ordinal) != gpu.peers.end()) peers.push_back(rank);
    }
    found.peers.push_back(std::move(peers));
  }
  return found;
}

std::uint32_t equal_runs(const std::vector<int>& nodes) {
  std::vector<std::uint32_t> lengths;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] < 0) return 0;
    if (i == 0 || nodes[i] != nodes[i - 1]) lengths.push_back(0);
    ++lengths.back();
  }
  const bool equal =
      std::ranges::all_of(lengths, [&](std::uint32_t length) { return length == lengths.front(); });
  return lengths.empty() || !equal ? 0 : lengths.front();
}

std::string cuda_version_text(std::uint32_t cuda_version) {
  return fmt::format("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10);
}

DriverFound ask_driver(const std::filesystem::path& worker_program, const Interrupt* interrupt,
                       std::chrono::milliseconds deadline) {
  DriverFound found;
  try {
    WorkerProcess worker({.who = "the worker that looks for GPUs",
                          .program = worker_program,
                          .arguments = worker_arguments(WorkerConfig{}),
                          .variables = {},
                          .log_file = {},
                          .interrupt = interrupt});
    Reply reply = worker.request({.op = Op::hello, .cell = {}}, deadline, "asked which GPUs there are");
    worker.quit(std::chrono::milliseconds(2000));
    found.problem = reply.error;
    if (reply.hello) found.hello = std::move(*reply.hello);
  } catch (const WorkerLost& lost) {
    found.problem = lost.what();
  }
  if (!found.problem.empty()) return found;
  if (found.hello.cuda_driver == 0) {
    found.problem = "there is no CUDA driver";
  } else if (found.hello.cuda_driver < oldest_cuda_driver) {
    found.problem =
        fmt::format("the driver knows CUDA {} only and {} is needed",
                    cuda_version_text(found.hello.cuda_driver), cuda_version_text(oldest_cuda_driver));
  }
  return found;
}

std::vector<DeviceInfo> mutual_peers(const std::vector<DeviceInfo>& devices,
                                     std::optional<std::uint32_t> wanted) {
  const std::size_t most = wanted.value_or(
      static_cast<std::uint32_t>(std::min<std::size_t>(devices.size(), static_cast<std::size_t>(max_ranks))));
  const std::size_t least = wanted ? most : 2;
  for (std::size_t size = most; size >= least && size >= 2; --size) {
    std::vector<DeviceInfo> group;
    if (extend(devices, 0, size, group)) return group;
  }
  return {};
}

GpuChoice choose_gpus(const DriverFound& found, std::optional<std::uint32_t> wanted, std::uint32_t least) {
  GpuChoice choice;
  const std::size_t there = found.hello.devices.size();
  const auto count_text = [](std::size_t count) {
    return count == 1 ? std::string("1 GPU") : fmt::format("{} GPUs", count);
  };
  if (!found.problem.empty()) {
    choice.why_none = found.problem;
  } else if (there < least) {
    choice.why_none =
        fmt::format("there {} {} and an allreduce needs 2", there == 1 ? "is" : "are", count_text(there));
  } else if (least < 2 && (wanted == 1u || there == 1)) {
    choice.devices = {found.hello.devices.front()};
  } else {
    choice.devices = mutual_peers(found.hello.devices, wanted);
    if (choice.devices.empty()) {
      choice.devices = mutual_peers(found.hello.devices, std::nullopt);
      if (choice.devices.empty() && least < 2) {
        choice.devices = {found.hello.devices.front()};
      } else if (choice.devices.empty()) {
        choice.why_none = fmt::format("none of the {} can read another's memory (no P2P)", count_text(there));
      }
    }
  }
  if (!wanted || choice.devices.size() == *wanted) return choice;
  if (*wanted < 2) throw UsageError(fmt::format("-g {}: an allreduce needs 2 GPUs or more", *wanted));
  if (choice.devices.empty()) {
    throw EnvironmentError(fmt::format("-g {}: {}; --emulate --ranks {} runs without GPUs", *wanted,
                                       choice.why_none,
                                       std::min(*wanted, static_cast<std::uint32_t>(max_ranks))));
  }
  if (*wanted > static_cast<std::uint32_t>(max_ranks)) {
    throw UsageError(fmt::format(
        "-g {}: kernels are made for at most {} ranks, and {} can be used here; take -g {} or less", *wanted,
        max_ranks, count_text(choice.devices.size()), choice.devices.size()));
  }
  throw UsageError(fmt::format("-g {}: only {} of {} reach each other directly; take -g {}", *wanted,
                               choice.devices.size(), count_text(there), choice.devices.size()));
}

}  // namespace arb
