// environment.json and manifest.json: what a run ran on, without the names of hosts and users and home paths.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bundle.h"
#include "cell.h"
#include "comparison_record.h"
#include "types.h"
#include "wire.h"

namespace arb {

struct NcclFound {
  std::string name;  // "2.28.9+cuda13.0"
  std::string path;
};

struct Environment {
  Evidence evidence = Evidence::emulated;
  std::string why_emulated;  // empty when measured or asked for
  std::uint32_t ranks = 0;
  std::string world;  // the rows' world
  std::string driver;
  std::uint32_t cuda_driver = 0;
  std::vector<DeviceInfo> gpus;  // those of the ranks
  std::vector<Bundle> bundles;   // those used
  std::optional<Bundle> support;
  std::vector<NcclFound> nccls;
  std::optional<MachineLimits> limits;
  std::vector<GpuDuring> during;  // of the ranks' GPUs while it ran; empty where nobody looked
};

// The variables of this process whose names start with CUDA_ or NCCL_; no others, because they may hold
// secrets.
std::map<std::string, std::string> gpu_variables();
// The compiler that made this program: "g++ 12.2.0".
std::string host_compiler();
// What a table's reader must know first, lines that start with #: evidence, ranks, GPUs, NCCLs, the machine's limits.
std::string headline(const Environment& environment);
// `probe_program` is arbench, which is asked once for the key "probe" (two seconds at most; what fails there
// becomes an "error" in it); empty: the key is null.
std::string environment_json(const Environment& environment, const std::filesystem::path& probe_program);
// {"bundles": {"13.0-nvrtc": <its manifest>, ...}}. Throws BundleError.
std::string manifest_json(const Environment& environment);
// The same facts as pairs, for Google Benchmark's context.
std::map<std::string, std::string> environment_pairs(const Environment& environment);

}  // namespace arb
