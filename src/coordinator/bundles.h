// Which kernel bundles there are, checked whole and matched with GPUs. Loads no code.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bundle.h"

namespace arb {

inline constexpr const char* support_bundle = "support";  // the kernels that are the same in every arm

// A bundle that cannot be used, and why, in one sentence.
struct BundleProblem {
  std::string name;
  std::string sentence;
};

// What a folder of bundles holds.
struct BundleSet {
  std::vector<Bundle> bundles;  // those of contenders, oldest toolkit first
  std::optional<Bundle> support;
  std::vector<BundleProblem> problems;
};

// Reads every bundle in `folder` (names with a dot in front are skipped) and every cubin against its hash. A
// missing folder gives an empty set.
BundleSet find_bundles(const std::filesystem::path& folder);
// bundles/ beside the program, where the portable folder and the build tree have it.
std::filesystem::path default_bundle_folder();
// Where this program lies.
std::filesystem::path program_folder();
// manifest.json of a bundle, as it is. Throws BundleError.
std::string manifest_text(const Bundle& bundle);

// True where native code for `code` ("sm_90") runs on a GPU of `gpu` ("sm_90"): same major, no higher minor;
// code for sm_XYa runs on sm_XY alone.
bool runs_on(const std::string& code, const std::string& gpu);
// Why `bundle` cannot run on such GPUs, in one sentence, or empty.
std::string hardware_problem(const Bundle& bundle, const std::vector<std::string>& gpu_architectures);

}  // namespace arb
