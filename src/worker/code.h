// Device code of a worker: every kernel of every bundle, loaded in every context before anything may wait.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "bundle.h"
#include "cuda_api/library.h"
#include "wire.h"

namespace arb::worker {

// The kernels that fill, check and time; from the bundle named `support`.
struct SupportKernels {
  cuda::Kernel empty, gate, stamp, rank_barrier, clock_tick, fill, check, ping_pong, barriers, move, advance,
      delay;
};

class Code {
 public:
  // Loads what `folders` hold for `architecture`. A bundle that cannot be used keeps its problem and the
  // others load; without a support bundle nothing can be measured, and support() says so.
  Code(std::span<const std::string> folders, std::string_view architecture,
       std::span<const cuda::Context> contexts);

  // The bundles in the order of the folders, each with its problem if it has one.
  [[nodiscard]] const std::vector<BundleInfo>& bundles() const { return bundles_; }
  // Throws BundleError.
  [[nodiscard]] const SupportKernels& support() const;
  // The function of a contender's bundle, or throws BundleError with a sentence.
  [[nodiscard]] cuda::Kernel kernel(const std::string& bundle, const std::string& function) const;

 private:
  void load(const Bundle& bundle, std::string_view architecture, std::span<const cuda::Context> contexts);

  std::vector<BundleInfo> bundles_;
  std::vector<cuda::Library> libraries_;
  std::map<std::string, std::map<std::string, cuda::Kernel>> kernels_;  // by bundle, by function
  SupportKernels support_;
  std::string support_problem_ =
      "there is no bundle `support`: build the bundles, or name their folder with --bundles";
};

}  // namespace arb::worker
