// What NVML says of the ranks' GPUs while something is measured: clocks, why they are what they are, link errors.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comparison_record.h"
#include "environment.h"
#include "nvml_api/nvml.h"

namespace arb {

class GpuWatch {
 public:
  // Of the GPUs with these UUIDs, by rank. Never throws for lack of NVML: there is nothing to see then.
  explicit GpuWatch(std::vector<std::string> uuids, const std::string& nvml_library = "libnvidia-ml.so.1");

  // Forgets all; errors are counted from now on.
  void begin();
  // To be called between measurements, as often as one likes: NVML takes some ms a GPU, during which the GPUs may be
  // disturbed, so that it is asked every half second at most.
  void look();
  // One more look, so while the GPUs are still at work or just after, and what was seen since begin(), by rank; what
  // could not be read is absent.
  std::vector<GpuDuring> end();
  // Whether something slowed a GPU at the last look: too hot, too much power, or an SM clock a twentieth below the
  // highest that this GPU had since begin().
  [[nodiscard]] bool throttled() const { return throttled_; }

 private:
  struct Sums {
    double sm_clock = 0;
    double memory_clock = 0;
    int sm_readings = 0;
    int memory_readings = 0;
    double least_sm_clock = 0;
    double most_sm_clock = 0;
    bool events_known = true;
    std::vector<std::string> events;
    std::optional<std::uint64_t> errors_before;
    std::optional<std::uint64_t> errors_now;
    std::optional<double> temperature_c;
  };
  void read(bool first);

  nvml::Session nvml_;
  std::vector<std::string> uuids_;
  std::map<std::string, Sums> sums_;  // by UUID
  std::chrono::steady_clock::time_point last_look_;
  bool throttled_ = false;
};

// One that has begun, for the GPUs of `environment`; null where nothing is measured.
std::unique_ptr<GpuWatch> watch_of(const Environment& environment);
// What a reader of the figures should know of it, a sentence a GPU: "the SM clock of rank 1's GPU was between 1410 and
// 1980 MHz". None where all was steady.
std::vector<std::string> remarks_on(const std::vector<GpuDuring>& during);

}  // namespace arb
