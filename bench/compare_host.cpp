#include "compare_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "catalog.h"
#include "coordinator/bundles.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

}  // namespace

GpuHost::GpuHost(const RunOptions& options, std::string log_folder, const Interrupt& interrupt, Say say)
    : options_(options), log_folder_(std::move(log_folder)), interrupt_(interrupt) {
  // Arms share most of what there is to say.
  say_ = [say = std::move(say), said = std::set<std::string>()](const std::string& sentence) mutable {
    if (said.insert(sentence).second) say(sentence);
  };
}

PreparedArm GpuHost::prepare(Role role, const ArmSpec& arm) {
  RunOptions options = options_;
  const fs::path shared_bundles = options.bundles.empty() ? default_bundle_folder() : options.bundles;
  if (!arm.program.empty()) {
    std::error_code error;
    if (!fs::is_regular_file(arm.program, error)) {
      throw UsageError(fmt::format("arbench={}: there is no such program", arm.program));
    }
    options.worker_program = fs::absolute(arm.program);
    // Another build brings its own kernels.
    if (options_.bundles.empty()) options.bundles = options.worker_program.parent_path() / "bundles";
  }
  if (!arm.bundle_folder.empty()) {
    const fs::path folder = fs::absolute(arm.bundle_folder).lexically_normal();
    const fs::path named = folder.filename().empty() ? folder.parent_path() : folder;
    std::error_code error;
    if (!fs::is_directory(named, error)) {
      throw UsageError(fmt::format("bundle={}: there is no such folder", arm.bundle_folder));
    }
    options.bundles = named.parent_path();
    options.toolkits = {named.filename().string()};
  }
  if (!arm.toolkit.empty()) options.toolkits = {arm.toolkit};
  if (!arm.nccl.empty()) options.nccl_paths = {arm.nccl};
  if (!arm.contender.empty()) options.contenders = {arm.contender};
  options.worker_variables = arm.variables;
  options.support_bundles = shared_bundles;
  if (options.toolkits.empty()) {
    // One bundle an arm: the newest toolkit's, by NVRTC where it is there.
    std::vector<std::string> names;
    for (const Bundle& bundle :
         find_bundles(options.bundles.empty() ? shared_bundles : options.bundles).bundles) {
      names.push_back(bundle.name);
    }
    if (!names.empty()) options.toolkits = {select_bundles({}, names).back()};
  }

  std::vector<std::string> said;
  auto session = std::make_unique<Session>(options, log_folder_, interrupt_,
                                           [&](const std::string& sentence) { said.push_back(sentence); });
  if (session->environment().evidence != Evidence::measured) {
    throw EnvironmentError(
        fmt::format("a comparison needs 2 GPUs that reach each other, because emulated rows have no time: "
                    "{}; `arbench compare "
                    "--static A B` compares compiled kernels without any",
                    session->environment().why_emulated.empty() ? "--emulate was given"
                                                                : session->environment().why_emulated));
  }
  for (const std::string& sentence : said) say_(sentence);
  if (session->machine().bundles.size() > 1) {
    throw UsageError(fmt::format("an arm has one toolkit, and '{}' is {}", fmt::join(options.toolkits, ","),
                                 fmt::join(session->machine().bundles, " and ")));
  }
  // Greets the workers and, once, measures the machine's limits.
  session->launch(say_, sessions_.empty()).reset();
  PreparedArm prepared{.machine = session->machine(), .found = {}};
  if (prepared.machine.nccls.size() > 1) {
    throw UsageError("an arm has one NCCL; name it in the arm: nccl=PATH");
  }
  const Environment& environment = session->environment();
  if (!environment.bundles.empty()) {
    prepared.found.bundle = environment.bundles.front().name;
    prepared.found.bundle_digest = environment.bundles.front().code_digest();
  }
  if (!environment.nccls.empty()) {
    prepared.found.nccl = environment.nccls.front().name;
    prepared.found.nccl_path = environment.nccls.front().path;
  }
  sessions_[role] = std::move(session);
  return prepared;
}

Launched GpuHost::launch(Role role) {
  Session& session = *sessions_.at(role);
  auto workers = session.launch_workers(say_);
  const Hello& hello = workers->hello();
  Launched launched{.backend = nullptr, .driver = hello.driver, .gpus = {}};
  for (const DeviceInfo& rank : session.environment().gpus) {
    const auto found = std::ranges::find(hello.devices, rank.ordinal, &DeviceInfo::ordinal);
    launched.gpus.push_back(found == hello.devices.end() ? "" : found->uuid);
  }
  launched.backend = std::move(workers);
  return launched;
}

std::optional<BundleFunction> GpuHost::function(Role role, const Cell& cell) const {
  const Environment& environment = sessions_.at(role)->environment();
  const CatalogRow* row = find_contender(cell.contender);
  if (row == nullptr || row->source != Source::kernel || environment.bundles.empty()) return std::nullopt;
  const std::string name = function_name(*row, cell.dtype, cell.ranks);
  const std::string& gpu = environment.gpus.front().architecture;
  // The driver takes the code that is nearest to the GPU.
  const BundleCubin* best = nullptr;
  for (const BundleCubin& cubin : environment.bundles.front().cubins) {
    if (cubin.kernel != row->kernel || !runs_on(cubin.architecture, gpu)) continue;
    if (best == nullptr || cubin.architecture > best->architecture) best = &cubin;
  }
  if (best == nullptr) return std::nullopt;
  const auto found = std::ranges::find(best->functions, name, &BundleFunction::name);
  return found == best->functions.end() ? std::nullopt : std::optional(*found);
}

Environment GpuHost::environment() const {
  Environment all = sessions_.at(Role::a)->environment();
  for (const auto& [role, session] : sessions_) {
    for (const Bundle& bundle : session->environment().bundles) {
      const auto same = [&](const Bundle& other) { return other.folder == bundle.folder; };
      if (std::ranges::any_of(all.bundles, same)) continue;
      Bundle named = bundle;
      // Two arms may have bundles of one name from two folders.
      for (int number = 2; std::ranges::find(all.bundles, named.name, &Bundle::name) != all.bundles.end();
           ++number) {
        named.name = fmt::format("{}#{}", bundle.name, number);
      }
      all.bundles.push_back(std::move(named));
    }
    for (const NcclFound& nccl : session->environment().nccls) {
      const auto same = [&](const NcclFound& other) { return other.path == nccl.path; };
      if (std::ranges::none_of(all.nccls, same)) all.nccls.push_back(nccl);
    }
  }
  return all;
}

std::string GpuHost::hardware_name() const {
  return sessions_.at(Role::a)->hardware_name();
}

void GpuHost::begin_watch(const std::vector<std::string>& gpus) {
  watch_ = std::make_unique<GpuWatch>(gpus);
  watch_->begin();
}

void GpuHost::look() {
  watch_->look();
}

std::vector<GpuDuring> GpuHost::end_watch() {
  return watch_->end();
}

}  // namespace arb
