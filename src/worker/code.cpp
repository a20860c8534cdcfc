#include "code.h"

#include <arb/abi.h>
#include <fmt/format.h>

#include "cuda_api/error.h"

namespace arb::worker {
namespace {

constexpr std::string_view support_name = "support";

struct SupportEntry {
  std::string_view function;
  cuda::Kernel SupportKernels::*member;
  std::size_t parameter_bytes;
};

constexpr SupportEntry support_entries[] = {
    {"support_empty", &SupportKernels::empty, sizeof(StampParams)},
    {"support_gate", &SupportKernels::gate, sizeof(GateParams)},
    {"support_stamp", &SupportKernels::stamp, sizeof(StampParams)},
    {"support_rank_barrier", &SupportKernels::rank_barrier, sizeof(KernelParams)},
    {"support_clock_tick", &SupportKernels::clock_tick, sizeof(ClockTickParams)},
    {"support_fill", &SupportKernels::fill, sizeof(FillParams)},
    {"support_check", &SupportKernels::check, sizeof(CheckParams)},
    {"support_ping_pong", &SupportKernels::ping_pong, sizeof(PingPongParams)},
    {"support_barriers", &SupportKernels::barriers, sizeof(KernelParams)},
    {"support_move", &SupportKernels::move, sizeof(MoveParams)},
    {"support_advance", &SupportKernels::advance, sizeof(AdvanceParams)},
    {"support_delay", &SupportKernels::delay, sizeof(DelayParams)},
};

}  // namespace

Code::Code(std::span<const std::string> folders, std::string_view architecture,
           std::span<const cuda::Context> contexts) {
  for (const std::string& folder : folders) {
    BundleInfo info{std::filesystem::path(folder).filename().string(), folder, "", ""};
    try {
      const Bundle bundle = read_bundle(folder);
      info.name = bundle.name;
      info.compiler = bundle.compiler;
      if (!contexts.empty()) load(bundle, architecture, contexts);
    } catch (const BundleError& error) {
      info.problem = error.what();
    } catch (const cuda::CudaError& error) {
      info.problem = error.what();
    }
    if (info.name == support_name) support_problem_ = info.problem;
    bundles_.push_back(std::move(info));
  }
}

void Code::load(const Bundle& bundle, std::string_view architecture,
                std::span<const cuda::Context> contexts) {
  if (!bundle.has_architecture(architecture)) {
    throw BundleError(
        fmt::format("bundle {} has no code for these GPUs ({}), only for {}: configure with "
                    "-DARB_ARCHITECTURES and build it again",
                    bundle.name, architecture, bundle.architectures()));
  }
  contexts.front().make_current();  // the driver reads a kernel's parameters in a context
  std::map<std::string, cuda::Kernel> loaded;
  for (const BundleCubin& cubin : bundle.cubins) {
    if (cubin.architecture != architecture) continue;
    libraries_.emplace_back(read_cubin(bundle, cubin),
                            fmt::format("{} of bundle {}", cubin.kernel, bundle.name));
    for (const BundleFunction& function : cubin.functions) {
      std::size_t parameter_bytes = sizeof(KernelParams);
      for (const SupportEntry& entry : support_entries) {
        if (entry.function == function.name) parameter_bytes = entry.parameter_bytes;
      }
      const cuda::Kernel kernel = libraries_.back().kernel(function.name, parameter_bytes);
      for (const cuda::Context& context : contexts) kernel.load_in(context);
      loaded[function.name] = kernel;
    }
  }
  if (bundle.name == support_name) {
    for (const SupportEntry& entry : support_entries) {
      const auto found = loaded.find(std::string(entry.function));
      if (found == loaded.end()) {
        throw BundleError(fmt::format("bundle support lacks {}: build it again from this program's sources",
                                      entry.function));
      }
      support_.*entry.member = found->second;
    }
  }
  kernels_[bundle.name] = std::move(loaded);
}

const SupportKernels& Code::support() const {
  if (!support_problem_.empty()) throw BundleError(support_problem_);
  return support_;
}

cuda::Kernel Code::kernel(const std::string& bundle, const std::string& function) const {
  for (const BundleInfo& info : bundles_) {
    if (info.name == bundle && !info.problem.empty()) throw BundleError(info.problem);
  }
  const auto of_bundle = kernels_.find(bundle);
  if (of_bundle == kernels_.end()) throw BundleError(fmt::format("bundle {} is not loaded", bundle));
  const auto found = of_bundle->second.find(function);
  if (found == of_bundle->second.end()) {
    throw BundleError(fmt::format("bundle {} has no function {}: build it again from this program's sources",
                                  bundle, function));
  }
  return found->second;
}

}  // namespace arb::worker
