#include "gpu_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text.h"

namespace arb {
namespace {

constexpr std::chrono::milliseconds between_looks{500};
// A clock below this part of the highest one slows whatever is bound by SMs, and moves a median visibly.
constexpr double least_steady_clock = 0.95;

// Sums of counters of which some may be absent; absent where all are.
std::optional<std::uint64_t> errors_of(const nvml::Device& device) {
  if (!device.pcie_replays && !device.nvlink_errors) return std::nullopt;
  return device.pcie_replays.value_or(0) + device.nvlink_errors.value_or(0);
}

// Settings and idleness hold a clock too, but nobody's figures suffer from them.
bool slows(const std::string& event) {
  constexpr const char* words[] = {"sw_power_cap", "hw_slowdown", "sw_thermal_slowdown",
                                   "hw_thermal_slowdown", "hw_power_brake_slowdown"};
  return std::ranges::find(words, event) != std::end(words);
}

}  // namespace

GpuWatch::GpuWatch(std::vector<std::string> uuids, const std::string& nvml_library)
    : nvml_(nvml_library), uuids_(std::move(uuids)) {}

void GpuWatch::read(bool first) {
  last_look_ = std::chrono::steady_clock::now();
  throttled_ = false;
  for (const nvml::Device& device : nvml_.devices()) {
    if (!device.uuid) continue;
    const auto found = sums_.find(*device.uuid);
    if (found == sums_.end()) continue;
    Sums& sums = found->second;
    if (first) sums.errors_before = errors_of(device);
    sums.errors_now = errors_of(device);
    if (first) continue;  // idle until now: its clocks say nothing
    if (device.sm_clock_mhz) {
      const double clock = *device.sm_clock_mhz;
      sums.least_sm_clock = sums.sm_readings == 0 ? clock : std::min(sums.least_sm_clock, clock);
      sums.most_sm_clock = std::max(sums.most_sm_clock, clock);
      sums.sm_clock += clock;
      ++sums.sm_readings;
      throttled_ = throttled_ || clock < sums.most_sm_clock * least_steady_clock;
    }
    if (device.memory_clock_mhz) {
      sums.memory_clock += *device.memory_clock_mhz;
      ++sums.memory_readings;
    }
    if (!device.clock_events) sums.events_known = false;
    for (const std::string& event : device.clock_events.value_or(std::vector<std::string>{})) {
      throttled_ = throttled_ || slows(event);
      if (event != "gpu_idle" && std::ranges::find(sums.events, event) == sums.events.end())
        sums.events.push_back(event);
    }
    if (device.temperature_c) {
      sums.temperature_c =
          std::max(sums.temperature_c.value_or(0), static_cast<double>(*device.temperature_c));
    }
  }
}

void GpuWatch::begin() {
  sums_.clear();
  for (const std::string& uuid : uuids_) sums_[uuid] = {};
  if (nvml_.why().empty()) read(true);
}

void GpuWatch::look() {
  if (!nvml_.why().empty() || std::chrono::steady_clock::now() - last_look_ < between_looks) return;
  read(false);
}

std::vector<GpuDuring> GpuWatch::end() {
  if (nvml_.why().empty()) read(false);
  std::vector<GpuDuring> result;
  for (const std::string& uuid : uuids_) {
    const Sums& sums = sums_[uuid];
    GpuDuring during;
    during.uuid = uuid;
    during.temperature_c = sums.temperature_c;
    if (sums.sm_readings > 0) {
      during.sm_clock_mhz = sums.sm_clock / sums.sm_readings;
      during.least_sm_clock_mhz = sums.least_sm_clock;
      during.most_sm_clock_mhz = sums.most_sm_clock;
    }
    if (sums.memory_readings > 0) during.memory_clock_mhz = sums.memory_clock / sums.memory_readings;
    if (sums.events_known && sums.sm_readings > 0) during.events = sums.events;
    if (sums.errors_before && sums.errors_now && *sums.errors_now >= *sums.errors_before)
      during.new_errors = *sums.errors_now - *sums.errors_before;
    result.push_back(std::move(during));
  }
  return result;
}

std::unique_ptr<GpuWatch> watch_of(const Environment& environment) {
  if (environment.evidence != Evidence::measured) return nullptr;
  std::vector<std::string> uuids;
  for (const DeviceInfo& gpu : environment.gpus) uuids.push_back(gpu.uuid);
  auto watch = std::make_unique<GpuWatch>(std::move(uuids));
  watch->begin();
  return watch;
}

std::vector<std::string> remarks_on(const std::vector<GpuDuring>& during) {
  std::vector<std::string> remarks;
  for (std::size_t rank = 0; rank < during.size(); ++rank) {
    const GpuDuring& gpu = during[rank];
    if (gpu.least_sm_clock_mhz && *gpu.least_sm_clock_mhz < *gpu.most_sm_clock_mhz * least_steady_clock) {
      remarks.push_back(fmt::format("the SM clock of rank {}'s GPU was between {:.0f} and {:.0f} MHz", rank,
                                    *gpu.least_sm_clock_mhz, *gpu.most_sm_clock_mhz));
    }
    std::vector<std::string> events = gpu.events.value_or(std::vector<std::string>{});
    std::erase_if(events, [](const std::string& event) { return !slows(event); });
    if (!events.empty())
      remarks.push_back(fmt::format("rank {}'s GPU was held back at times: {}", rank, enumerate(events)));
    if (gpu.new_errors.value_or(0) > 0)
      remarks.push_back(
          fmt::format("the links of rank {}'s GPU counted {} new errors", rank, *gpu.new_errors));
  }
  return remarks;
}

}  // namespace arb
