// What NVML says about the GPUs and the links between them, now. Makes no CUDA context, changes nothing.
//
// NVML counts devices in its own order, also those that CUDA_VISIBLE_DEVICES hides: join with CUDA's by UUID.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace arb::nvml {

// One GPU. What NVML cannot say is absent.
struct Device {
  std::uint32_t index = 0;                        // NVML's
  std::optional<std::string> name;                // "NVIDIA H200"
  std::optional<std::string> uuid;                // "GPU-..."
  std::optional<std::string> pci_address;         // "00000000:17:00.0"
  std::optional<std::string> compute_capability;  // "12.0"
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> bar1_bytes;  // what peers and the host can address at a time
  std::optional<std::uint32_t> sm_clock_mhz;
  std::optional<std::uint32_t> sm_clock_max_mhz;
  std::optional<std::uint32_t> memory_clock_mhz;
  std::optional<std::uint32_t> memory_clock_max_mhz;
  std::optional<std::vector<std::string>> clock_events;  // why clocks are as they are: words of
                                                         // clock_event_words; empty: nothing holds them
  std::optional<std::uint32_t> temperature_c;
  std::optional<double> power_w;
  std::optional<double> power_limit_w;               // the one enforced
  std::optional<std::uint32_t> pcie_generation;      // now; an idle GPU may have gone down to 1
  std::optional<std::uint32_t> pcie_width_lanes;     // now
  std::optional<std::uint32_t> pcie_generation_max;  // that GPU and slot can do together
  std::optional<std::uint32_t> pcie_width_max_lanes;
  std::optional<std::uint64_t> pcie_replays;  // since the driver was loaded; growth means a bad link
  std::optional<std::uint32_t> nvlinks_active;
  std::optional<std::uint64_t> nvlink_errors;  // replays, recoveries and CRC errors over all links

  friend bool operator==(const Device&, const Device&) = default;
};

// One ordered pair of GPUs. A status is "ok" or why not: "chipset not supported", "GPU not supported", "IOH
// topology not supported", "disabled by registry key", "not supported", "unknown".
struct Pair {
  std::uint32_t from = 0;  // Device::index
  std::uint32_t to = 0;
  std::optional<std::string>
      common_ancestor;  // nvidia-smi's: "same board", "PIX", "PXB", "PHB", "NODE", "SYS"
  std::optional<std::string> p2p_read;
  std::optional<std::string> p2p_write;
  std::optional<std::string> p2p_nvlink;
  std::optional<std::string> p2p_atomics;

  friend bool operator==(const Pair&, const Pair&) = default;
};

struct Snapshot {
  std::string why;                         // NVML cannot be asked: one sentence; empty: it was
  std::optional<std::string> driver;       // "580.82.07"
  std::optional<std::string> cuda_driver;  // "13.0": the highest CUDA that the driver supports
  std::vector<Device> devices;
  std::vector<Pair> pairs;

  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

// NVML, opened and initialised while the object lives: for samples taken again and again.
class Session {
 public:
  // Never throws for lack of NVML: why() says so then, and everything else is empty.
  explicit Session(const std::string& library = "libnvidia-ml.so.1");
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) = delete;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Why NVML cannot be asked, one sentence; empty: it can.
  [[nodiscard]] const std::string& why() const { return why_; }
  // Everything; some ms a device.
  [[nodiscard]] Snapshot snapshot() const;
  // The devices alone, what changes while a benchmark runs.
  [[nodiscard]] std::vector<Device> devices() const;

 private:
  struct Opened;
  std::unique_ptr<const Opened> opened_;
  std::string why_;
};

// A session of one snapshot.
Snapshot snapshot();

// The words for a mask of clock event (throttle) reasons: "gpu_idle", "applications_clocks_setting",
// "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown",
// "hw_power_brake_slowdown", "display_clock_setting"; a bit unknown here is "reason_0x200".
std::vector<std::string> clock_event_words(std::uint64_t reasons);

}  // namespace arb::nvml
