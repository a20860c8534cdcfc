#include "nvml_api/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <utility>

#include "nvml_api/entries.h"

namespace arb::nvml {
namespace {

using entry::Handle;

struct Unloader {
  void operator()(void* handle) const { ::dlclose(handle); }
};

// The first of several names that the library has: newer names come first.
template <typename Function>
void find_entry(void* handle, Function*& function, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    function = reinterpret_cast<Function*>(::dlsym(handle, name));
    if (function != nullptr) return;
  }
}

// Calls an entry whose last argument takes the answer; absent where there is no entry or no answer.
template <typename Value, typename... Parameters, typename... Arguments>
std::optional<Value> ask(entry::Result (*function)(Parameters...), Arguments... arguments) {
  Value value{};
  if (function == nullptr || function(arguments..., &value) != entry::success) return std::nullopt;
  return value;
}

template <typename Function, typename... Arguments>
std::optional<std::string> ask_text(Function* function, Arguments... arguments) {
  std::array<char, entry::text_length> text{};
  if (function == nullptr || function(arguments..., text.data(), entry::text_length) != entry::success) {
    return std::nullopt;
  }
  text.back() = '\0';
  return std::string(text.data());
}

std::optional<double> watts(std::optional<unsigned> milliwatts) {
  if (!milliwatts) return std::nullopt;
  return *milliwatts / 1000.0;
}

std::optional<std::string> ancestor_word(std::optional<unsigned> level) {
  if (!level) return std::nullopt;
  switch (*level) {
    case 0:
      return "same board";
    case 10:
      return "PIX";
    case 20:
      return "PXB";
    case 30:
      return "PHB";
    case 40:
      return "NODE";
    case 50:
      return "SYS";
    default:
      return std::nullopt;
  }
}

std::optional<std::string> p2p_word(std::optional<unsigned> status) {
  constexpr std::array words{"ok",
                             "chipset not supported",
                             "GPU not supported",
                             "IOH topology not supported",
                             "disabled by registry key",
                             "not supported",
                             "unknown"};
  if (!status || *status >= words.size()) return std::nullopt;
  return words.at(*status);
}

// How many links are up; absent where no link answers.
void add_nvlinks(const entry::Entries& nvml, Handle* handle, Device& device) {
  for (unsigned link = 0; link < entry::nvlink_max_links; ++link) {
    const auto active = ask<unsigned>(nvml.nvlink_state, handle, link);
    if (!active) continue;
    device.nvlinks_active = device.nvlinks_active.value_or(0) + (*active != 0 ? 1U : 0U);
    if (*active == 0) continue;
    for (unsigned counter = 0; counter < entry::nvlink_error_counters; ++counter) {
      if (const auto errors = ask<unsigned long long>(nvml.nvlink_errors, handle, link, counter)) {
        device.nvlink_errors = device.nvlink_errors.value_or(0) + *errors;
      }
    }
  }
}

Device describe(const entry::Entries& nvml, std::uint32_t index, Handle* handle) {
  Device device;
  device.index = index;
  device.name = ask_text(nvml.name, handle);
  device.uuid = ask_text(nvml.uuid, handle);
  if (auto info = ask<entry::PciInfo>(nvml.pci_info, handle)) {
    info->address[sizeof info->address - 1] = '\0';
    device.pci_address = info->address;
  }
  int major = 0;
  int minor = 0;
  if (nvml.compute_capability != nullptr &&
      nvml.compute_capability(handle, &major, &minor) == entry::success) {
    device.compute_capability = fmt::format("{}.{}", major, minor);
  }
  if (const auto memory = ask<entry::MemoryInfo>(nvml.memory, handle))
    device.memory_bytes = memory->total_bytes;
  if (const auto memory = ask<entry::MemoryInfo>(nvml.bar1_memory, handle)) {
    device.bar1_bytes = memory->total_bytes;
  }
  device.sm_clock_mhz = ask<unsigned>(nvml.clock, handle, entry::clock_sm);
  device.sm_clock_max_mhz = ask<unsigned>(nvml.max_clock, handle, entry::clock_sm);
  device.memory_clock_mhz = ask<unsigned>(nvml.clock, handle, entry::clock_memory);
  device.memory_clock_max_mhz = ask<unsigned>(nvml.max_clock, handle, entry::clock_memory);
  if (const auto reasons = ask<unsigned long long>(nvml.clock_events, handle)) {
    device.clock_events = clock_event_words(*reasons);
  }
  device.temperature_c = ask<unsigned>(nvml.temperature, handle, entry::temperature_gpu);
  device.power_w = watts(ask<unsigned>(nvml.power_mw, handle));
  device.power_limit_w = watts(ask<unsigned>(nvml.power_limit_mw, handle));
  device.pcie_generation = ask<unsigned>(nvml.pcie_generation, handle);
  device.pcie_width_lanes = ask<unsigned>(nvml.pcie_width, handle);
  device.pcie_generation_max = ask<unsigned>(nvml.pcie_generation_max, handle);
  device.pcie_width_max_lanes = ask<unsigned>(nvml.pcie_width_max, handle);
  device.pcie_replays = ask<unsigned>(nvml.pcie_replays, handle);
  add_nvlinks(nvml, handle, device);
  return device;
}

Pair describe(const entry::Entries& nvml, std::pair<std::uint32_t, Handle*> from,
              std::pair<std::uint32_t, Handle*> to) {
  const auto status = [&](unsigned kind) {
    return p2p_word(ask<unsigned>(nvml.p2p_status, from.second, to.second, kind));
  };
  Pair pair;
  pair.from = from.first;
  pair.to = to.first;
  pair.common_ancestor = ancestor_word(ask<unsigned>(nvml.common_ancestor, from.second, to.second));
  pair.p2p_read = status(entry::p2p_read);
  pair.p2p_write = status(entry::p2p_write);
  pair.p2p_nvlink = status(entry::p2p_nvlink);
  pair.p2p_atomics = status(entry::p2p_atomics);
  return pair;
}

// The devices that NVML gives a handle for, with their indices.
std::vector<std::pair<std::uint32_t, Handle*>> handles(const entry::Entries& nvml) {
  std::vector<std::pair<std::uint32_t, Handle*>> found;
  const unsigned count = ask<unsigned>(nvml.device_count).value_or(0);
  for (unsigned index = 0; index < count; ++index) {
    if (const auto handle = ask<Handle*>(nvml.device_by_index, index)) found.emplace_back(index, *handle);
  }
  return found;
}

entry::Entries entries_of(void* handle) {
  entry::Entries nvml;
  find_entry(handle, nvml.init, {"nvmlInit_v2"});
  find_entry(handle, nvml.shutdown, {"nvmlShutdown"});
  find_entry(handle, nvml.device_count, {"nvmlDeviceGetCount_v2"});
  find_entry(handle, nvml.device_by_index, {"nvmlDeviceGetHandleByIndex_v2"});
  find_entry(handle, nvml.error_string, {"nvmlErrorString"});
  find_entry(handle, nvml.driver_version, {"nvmlSystemGetDriverVersion"});
  find_entry(handle, nvml.cuda_driver_version,
             {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"});
  find_entry(handle, nvml.name, {"nvmlDeviceGetName"});
  find_entry(handle, nvml.uuid, {"nvmlDeviceGetUUID"});
  find_entry(handle, nvml.clock, {"nvmlDeviceGetClockInfo"});
  find_entry(handle, nvml.max_clock, {"nvmlDeviceGetMaxClockInfo"});
  find_entry(handle, nvml.clock_events,
             {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  find_entry(handle, nvml.temperature, {"nvmlDeviceGetTemperature"});
  find_entry(handle, nvml.power_mw, {"nvmlDeviceGetPowerUsage"});
  find_entry(handle, nvml.power_limit_mw, {"nvmlDeviceGetEnforcedPowerLimit"});
  find_entry(handle, nvml.pcie_generation, {"nvmlDeviceGetCurrPcieLinkGeneration"});
  find_entry(handle, nvml.pcie_width, {"nvmlDeviceGetCurrPcieLinkWidth"});
  find_entry(handle, nvml.pcie_generation_max, {"nvmlDeviceGetMaxPcieLinkGeneration"});
  find_entry(handle, nvml.pcie_width_max, {"nvmlDeviceGetMaxPcieLinkWidth"});
  find_entry(handle, nvml.pcie_replays, {"nvmlDeviceGetPcieReplayCounter"});
  find_entry(handle, nvml.nvlink_state, {"nvmlDeviceGetNvLinkState"});
  find_entry(handle, nvml.nvlink_errors, {"nvmlDeviceGetNvLinkErrorCounter"});
  find_entry(handle, nvml.pci_info, {"nvmlDeviceGetPciInfo_v3"});
  find_entry(handle, nvml.compute_capability, {"nvmlDeviceGetCudaComputeCapability"});
  find_entry(handle, nvml.memory, {"nvmlDeviceGetMemoryInfo"});
  find_entry(handle, nvml.bar1_memory, {"nvmlDeviceGetBAR1MemoryInfo"});
  find_entry(handle, nvml.common_ancestor, {"nvmlDeviceGetTopologyCommonAncestor"});
  find_entry(handle, nvml.p2p_status, {"nvmlDeviceGetP2PStatus"});
  return nvml;
}

}  // namespace

struct Session::Opened {
  std::unique_ptr<void, Unloader> library;
  entry::Entries nvml;
};

Session::Session(const std::string& library) {
  auto opened = std::make_unique<Opened>();
  opened->library.reset(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!opened->library) {
    const char* const said = ::dlerror();
    why_ = fmt::format("NVML cannot be loaded ({}); the NVIDIA driver brings it",
                       said == nullptr ? library : std::string(said));
    return;
  }
  opened->nvml = entries_of(opened->library.get());
  const entry::Entries& nvml = opened->nvml;
  if (nvml.init == nullptr || nvml.shutdown == nullptr || nvml.device_count == nullptr ||
      nvml.device_by_index == nullptr) {
    why_ = fmt::format(
        "{} is no NVML that this program can use: nvmlInit_v2 or a device entry is missing; the "
        "NVIDIA driver brings one",
        library);
    return;
  }
  if (const entry::Result result = nvml.init(); result != entry::success) {
    const char* const said = nvml.error_string == nullptr ? nullptr : nvml.error_string(result);
    why_ = fmt::format("NVML cannot be initialised ({}); it needs a loaded NVIDIA driver",
                       said == nullptr ? fmt::format("code {}", result) : std::string(said));
    return;
  }
  opened_ = std::move(opened);
}

Session::~Session() {
  if (opened_) opened_->nvml.shutdown();
}

Session::Session(Session&&) noexcept = default;

std::vector<Device> Session::devices() const {
  std::vector<Device> devices;
  if (!opened_) return devices;
  for (const auto& [index, handle] : handles(opened_->nvml)) {
    devices.push_back(describe(opened_->nvml, index, handle));
  }
  return devices;
}

Snapshot Session::snapshot() const {
  Snapshot snapshot;
  snapshot.why = why_;
  if (!opened_) return snapshot;
  const entry::Entries& nvml = opened_->nvml;
  snapshot.driver = ask_text(nvml.driver_version);
  if (const auto code = ask<int>(nvml.cuda_driver_version)) {
    snapshot.cuda_driver = fmt::format("{}.{}", *code / 1000, *code % 1000 / 10);
  }
  const auto found = handles(nvml);
  for (const auto& [index, handle] : found) snapshot.devices.push_back(describe(nvml, index, handle));
  for (const auto& from : found) {
    for (const auto& to : found) {
      if (from.first != to.first) snapshot.pairs.push_back(describe(nvml, from, to));
    }
  }
  return snapshot;
}

Snapshot snapshot() {
  return Session().snapshot();
}

std::vector<std::string> clock_event_words(std::uint64_t reasons) {
  constexpr std::array words{"gpu_idle",
                             "applications_clocks_setting",
                             "sw_power_cap",
                             "hw_slowdown",
                             "sync_boost",
                             "sw_thermal_slowdown",
                             "hw_thermal_slowdown",
                             "hw_power_brake_slowdown",
                             "display_clock_setting"};
  std::vector<std::string> found;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t mask = std::uint64_t{1} << bit;
    if ((reasons & mask) == 0) continue;
    found.push_back(bit < words.size() ? std::string(words.at(bit)) : fmt::format("reason_{:#x}", mask));
  }
  return found;
}

}  // namespace arb::nvml
