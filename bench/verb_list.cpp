#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "catalog.h"
#include "coordinator/bundles.h"
#include "coordinator/machine.h"
#include "coordinator/nccl_files.h"
#include "errors.h"
#include "log.h"
#include "verbs.h"

namespace arb {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::chrono::seconds patience{60};

// One NCCL library as a worker found it.
struct NcclEntry {
  std::string path;
  std::string version;
  std::string problem;
  std::string window_problem;
};

// Each library is loaded by a worker of its own: two NCCLs in one process get in each other's way.
std::vector<NcclEntry> ask_nccls(const ListOptions& options, const Interrupt& interrupt) {
  std::vector<NcclEntry> entries;
  for (const std::string& library : nccl_candidates(options.nccl_paths)) {
    WorkerConfig config;
    config.nccl_library = library;
    NcclEntry entry{.path = library, .version = {}, .problem = {}, .window_problem = {}};
    try {
      WorkerProcess worker({.who = fmt::format("the worker of NCCL {}", library),
                            .program = options.worker_program,
                            .arguments = worker_arguments(config),
                            .variables = {},
                            .log_file = {},
                            .interrupt = &interrupt});
      const Reply reply = worker.request({.op = Op::hello, .cell = {}}, patience, "asked for its version");
      worker.quit(std::chrono::seconds(2));
      entry.problem = reply.error;
      if (reply.hello) {
        entry.version = reply.hello->nccl_version;
        entry.problem = reply.hello->nccl_problem;
        entry.window_problem = reply.hello->nccl_window_problem;
        if (!reply.hello->nccl_path.empty()) entry.path = reply.hello->nccl_path;
      }
    } catch (const WorkerLost& lost) {
      entry.problem = lost.what();
    }
    bool known = false;
    for (const NcclEntry& other : entries)
      known = known || (other.path == entry.path && !entry.version.empty());
    if (!known) entries.push_back(std::move(entry));
  }
  return entries;
}

// Why a contender of NCCL's or a peer's cannot run here; empty: nothing is known against it, and so for kernels, whose
// bundles are listed.
std::string why_not(const CatalogRow& row, const DriverFound& driver, const std::vector<NcclEntry>& nccls) {
  if (runs_kernels(row)) return "";
  if (!driver.problem.empty()) return driver.problem;
  const GpuChoice gpus = choose_gpus(driver, std::nullopt);
  if (gpus.devices.empty()) return gpus.why_none;
  if (row.source == Source::peer) return "";  // nobody is asked: to import it takes long
  std::string why = "no NCCL was found; --nccl PATH takes a libnccl.so.2";
  for (const NcclEntry& nccl : nccls) {
    if (!nccl.problem.empty()) continue;
    if (!needs_windows(row) || nccl.window_problem.empty()) return "";
    why = nccl.window_problem;
  }
  return why;
}

std::string_view name_of(Source source) {
  switch (source) {
    case Source::nccl:
      return "nccl";
    case Source::peer:
      return "peer";
    case Source::chosen:
      return "chosen";
    case Source::kernel:
      break;
  }
  return "kernel";
}

// "NCCL_P2P_LEVEL=SYS NCCL_MIN_NCHANNELS=8", "in a symmetric window"; "with --peer torch --world processes"; empty for NCCL
// as it is.
std::string configuration_of(const CatalogRow& row) {
  if (row.source == Source::peer) return fmt::format("with --peer {} --world processes", row.peer);
  std::string text;
  for (const NcclVariable& variable : row.nccl_variables)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", variable.name, variable.value);
  if (needs_windows(row)) text += text.empty() ? "in a symmetric window" : ", in a symmetric window";
  return text;
}

ExitCode list(const ListOptions& options, const Terminal& terminal, const Interrupt& interrupt, Log& log) {
  const std::filesystem::path folder = options.bundles.empty() ? default_bundle_folder() : options.bundles;
  std::error_code error;
  if (!options.bundles.empty() && !std::filesystem::is_directory(folder, error)) {
    throw UsageError(fmt::format(
        "--bundles {}: no such folder; give one that holds folders such as 13.0-nvrtc", folder.string()));
  }
  const BundleSet bundles = find_bundles(folder);
  const DriverFound driver = ask_driver(options.worker_program, &interrupt, patience);
  const std::vector<NcclEntry> nccls = driver.problem.empty() || !options.nccl_paths.empty()
                                           ? ask_nccls(options, interrupt)
                                           : std::vector<NcclEntry>{};

  if (options.json) {
    Json json;
    json["contenders"] = Json::array();
    for (const CatalogRow& row : catalog()) {
      Json entry = {{"contender", row.contender},
                    {"source", name_of(row.source)},
                    {"style", row.style == Style::symmetric ? "symmetric" : "staged"},
                    {"in_place", row.in_place},
                    {"sum_order", row.sum_order}};
      if (!row.kernel.empty()) entry["kernel"] = row.kernel;
      if (!row.peer.empty()) entry["peer"] = row.peer;
      for (const NcclVariable& variable : row.nccl_variables)
        entry["variables"][variable.name] = variable.value;
      if (const std::string why = why_not(row, driver, nccls); !why.empty()) entry["cannot_run"] = why;
      json["contenders"].push_back(std::move(entry));
    }
    json["bundles"] = Json::array();
    for (const Bundle& bundle : bundles.bundles) {
      json["bundles"].push_back({{"name", bundle.name},
                                 {"compiler_version", bundle.compiler_version},
                                 {"architectures", bundle.architectures()},
                                 {"source_hash", bundle.source_hash}});
    }
    json["bundle_problems"] = Json::array();
    for (const BundleProblem& problem : bundles.problems) {
      json["bundle_problems"].push_back({{"name", problem.name}, {"problem", problem.sentence}});
    }
    json["driver"] = Json::object();
    if (!driver.problem.empty()) json["driver"]["problem"] = driver.problem;
    if (driver.hello.cuda_driver != 0) {
      json["driver"]["version"] = driver.hello.driver;
      json["driver"]["cuda"] = cuda_version_text(driver.hello.cuda_driver);
    }
    json["gpus"] = Json::array();
    for (const DeviceInfo& gpu : driver.hello.devices) {
      json["gpus"].push_back({{"ordinal", gpu.ordinal},
                              {"name", gpu.name},
                              {"architecture", gpu.architecture},
                              {"uuid", gpu.uuid},
                              {"pci_address", gpu.pci_address},
                              {"memory_bytes", gpu.memory_bytes},
                              {"peers", gpu.peers}});
    }
    json["nccl"] = Json::array();
    for (const NcclEntry& nccl : nccls) {
      Json entry = {{"path", nccl.path}};
      entry[nccl.problem.empty() ? "version" : "problem"] =
          nccl.problem.empty() ? nccl.version : nccl.problem;
      json["nccl"].push_back(std::move(entry));
    }
    terminal.out << json.dump(2, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    std::ostream& out = terminal.out;
    out << "contenders\n";
    for (const CatalogRow& row : catalog()) {
      const std::string configuration = configuration_of(row);
      const std::string reason = why_not(row, driver, nccls);
      const std::string why = reason.substr(0, reason.find(';'));  // what would help stands further down
      out << fmt::format("  {:<26} {:<10} {:<14} {}{}{}\n", row.contender,
                         row.style == Style::symmetric ? "symmetric" : "staged",
                         row.in_place ? "out, in place" : "out of place", row.sum_order,
                         configuration.empty() ? "" : "; " + configuration,
                         why.empty() ? "" : "; cannot run here: " + why);
    }
    out << fmt::format("kernel bundles in {}\n", folder.string());
    for (const Bundle& bundle : bundles.bundles) {
      out << fmt::format("  {:<14} {}; {}\n", bundle.name, bundle.architectures(), bundle.compiler_version);
    }
    if (bundles.bundles.empty()) out << "  none\n";
    out << "GPUs\n";
    if (!driver.problem.empty()) out << fmt::format("  none: {}\n", driver.problem);
    for (const DeviceInfo& gpu : driver.hello.devices) {
      out << fmt::format("  {} {} {} {} {:.0f} GiB, reaches {}\n", gpu.ordinal, gpu.name, gpu.architecture,
                         gpu.pci_address, static_cast<double>(gpu.memory_bytes) / (1 << 30),
                         fmt::join(gpu.peers, " "));
    }
    if (driver.hello.cuda_driver != 0) {
      out << fmt::format("  driver {}, CUDA {}\n", driver.hello.driver,
                         cuda_version_text(driver.hello.cuda_driver));
    }
    out << "NCCL\n";
    for (const NcclEntry& nccl : nccls) {
      out << fmt::format("  {} {}\n", nccl.path,
                         nccl.problem.empty() ? nccl.version : "cannot be used: " + nccl.problem);
    }
    if (nccls.empty()) {
      bool found = false;
      for (const std::string& candidate : nccl_candidates(options.nccl_paths)) {
        if (!candidate.starts_with('/')) continue;  // the loader's name for it
        out << fmt::format("  {} not opened: NCCL runs on GPUs only\n", candidate);
        found = true;
      }
      if (!found) out << "  none in the usual places; --nccl PATH takes one\n";
    }
    out.flush();
  }
  for (const BundleProblem& problem : bundles.problems) log.sentence(problem.sentence);
  return bundles.problems.empty() ? ExitCode::good : ExitCode::invalid_environment;
}

}  // namespace

int list_verb(const ListOptions& options, const Terminal& terminal, const Interrupt& interrupt) {
  Log log(terminal.err, terminal.err_is_live);
  try {
    return status_of(list(options, terminal, interrupt, log));
  } catch (const UsageError& error) {
    log.sentence(error.what());
    return status_of(ExitCode::usage);
  } catch (const std::exception& error) {
    log.sentence(error.what());
    return status_of(ExitCode::invalid_environment);
  }
}

}  // namespace arb
