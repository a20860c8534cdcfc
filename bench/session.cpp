#include "session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <string_view>

#include "catalog.h"
#include "coordinator/machine.h"
#include "coordinator/nccl_files.h"
#include "coordinator/worker_backend.h"
#include "emulator/box.h"
#include "text.h"

namespace arb {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds driver_patience{60};
constexpr std::uint32_t default_emulated_ranks = 8;
constexpr std::uint32_t most_ranks = 8;

// The values of a list of names of a small enum; "all" is every value.
template <typename Enum, std::size_t Count>
std::vector<Enum> values_from(const std::vector<std::string>& names, std::string_view flag,
                              const std::array<Enum, Count>& all, std::vector<Enum> fallback) {
  std::vector<Enum> values;
  for (const std::string& name : names) {
    if (name == "all") return {all.begin(), all.end()};
    const auto found = std::ranges::find_if(all, [&](Enum value) { return name_of(value) == name; });
    if (found == all.end()) {
      std::vector<std::string> known;
      for (const Enum value : all) known.emplace_back(name_of(value));
      throw UsageError(fmt::format("{} '{}': there are {}", flag, name, enumerate(known)));
    }
    if (std::ranges::find(values, *found) == values.end()) values.push_back(*found);
  }
  return values.empty() ? fallback : values;
}

std::vector<Dtype> dtypes_from(const std::vector<std::string>& names) {
  std::vector<Dtype> dtypes;
  for (const std::string& name : names) {
    if (name == "all") return {all_dtypes.begin(), all_dtypes.end()};
    const auto dtype = dtype_from(name);
    if (!dtype) {
      const std::vector<std::string> known = {"bf16", "fp16",  "fp32",    "bfloat16",
                                              "half", "float", "float16", "float32"};
      const auto nearest = nearest_name(name, known);
      throw UsageError(
          fmt::format("-d '{}': no such type; {}there are bf16 (bfloat16), fp16 (half), fp32 (float) and all",
                      name, nearest ? fmt::format("did you mean '{}'? ", *nearest) : ""));
    }
    if (std::ranges::find(dtypes, *dtype) == dtypes.end()) dtypes.push_back(*dtype);
  }
  return dtypes.empty() ? std::vector{Dtype::bf16} : dtypes;
}

}  // namespace

Sweep sweep_of(const RunOptions& options, Evidence evidence) {
  const auto [default_min_bytes, default_max_bytes] = default_sizes(evidence);
  Sweep sweep;
  // One bound alone moves the other default along, so that `-b 64M` is not an error.
  sweep.min_bytes =
      options.min_bytes.value_or(std::min(default_min_bytes, options.max_bytes.value_or(default_min_bytes)));
  sweep.max_bytes = options.max_bytes.value_or(std::max(default_max_bytes, sweep.min_bytes));
  sweep.factor = options.factor.value_or(2);
  sweep.step_bytes = options.step_bytes.value_or(0);
  if (options.step_bytes && options.factor) {
    throw UsageError("-i and -f are two ways from one size to the next; give one of them");
  }
  if (options.step_bytes == 0) throw UsageError("-i 0 would never reach -e; a step is at least one element");
  sweep.dtypes = dtypes_from(options.dtypes);
  sweep.contenders = options.contenders;
  sweep.toolkits = options.toolkits;
  sweep.places = values_from(options.places, "--place", std::array{Place::out, Place::in}, {Place::out});
  const std::vector<Mode> modes = evidence == Evidence::emulated
                                      ? std::vector{Mode::pipelined}
                                      : std::vector{Mode::pipelined, Mode::isolated};
  sweep.modes = values_from(options.modes, "--mode", std::array{Mode::pipelined, Mode::isolated}, modes);
  sweep.caches = values_from(options.caches, "--cache", std::array{Cache::warm, Cache::cold}, {Cache::warm});
  if (options.samples == 0u) throw UsageError("-n 0 takes no sample; give 1 or more");
  sweep.samples = options.samples;
  sweep.warmups = options.warmups;
  sweep.seed = options.seed;
  sweep.check = options.check;
  return sweep;
}

Session::Session(const RunOptions& options, const std::string& log_folder, const Interrupt& interrupt,
                 const Say& say, std::uint32_t least_gpus)
    : options_(options), log_folder_(log_folder), interrupt_(interrupt) {
  const auto in_range = [](std::uint32_t ranks) { return ranks >= 2 && ranks <= most_ranks; };
  if (options_.ranks && !in_range(*options_.ranks)) {
    throw UsageError(
        fmt::format("--ranks {}: kernels are made for 2 to {} ranks", *options_.ranks, most_ranks));
  }
  if (options_.gpus && options_.emulate) {
    throw UsageError("-g and --emulate contradict each other; --ranks says how many ranks to emulate");
  }
  if (options_.world && options_.emulate) {
    throw UsageError("--world says who holds the ranks on GPUs; with --emulate it has no meaning");
  }
  if (!options_.peers.empty() && options_.emulate)
    throw UsageError("--peer is a library for GPUs; with --emulate it has no meaning");
  if (!options_.bundles.empty()) {
    std::error_code error;
    if (!fs::is_directory(options_.bundles, error)) {
      throw UsageError(
          fmt::format("--bundles {}: no such folder; give one that holds folders such as 13.0-nvrtc",
                      options_.bundles.string()));
    }
  }
  choose_peers();
  const std::vector<std::string> nccl_check =
      nccl_candidates(options_.nccl_paths);  // throws on a path that is not there

  if (!options_.emulate) {
    const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
    const std::string_view value = blocking != nullptr ? blocking : "";
    if (!value.empty() && value != "0") {
      throw EnvironmentError(
          fmt::format("CUDA_LAUNCH_BLOCKING={} is set, and with it a kernel that waits for a peer's "
                      "waits for ever; unset it",
                      value));
    }
    const DriverFound driver = ask_driver(options_.worker_program, &interrupt_, driver_patience);
    GpuChoice choice = choose_gpus(driver, options_.gpus, least_gpus);
    environment_.gpus = std::move(choice.devices);
    environment_.driver = driver.hello.driver;
    environment_.cuda_driver = driver.hello.cuda_driver;
    environment_.why_emulated = choice.why_none;
    if (!choice.why_none.empty()) {
      say(fmt::format("this run is emulated (data and traffic, no times), because {}", choice.why_none));
      std::vector<std::string> idle;
      if (!options_.toolkits.empty()) idle.emplace_back("--toolkit");
      if (options_.world) idle.emplace_back("--world");
      if (!options_.peers.empty()) idle.emplace_back("--peer");
      if (!options_.nccl_paths.empty()) idle.emplace_back("--nccl");
      if (!idle.empty())
        say(fmt::format("{} {} no effect on it", enumerate(idle), idle.size() == 1 ? "has" : "have"));
    }
  }
  const bool emulated = environment_.gpus.empty();
  machine_.evidence = emulated ? Evidence::emulated : Evidence::measured;
  if (emulated) {
    machine_.ranks = options_.ranks.value_or(default_emulated_ranks);
  } else {
    if (options_.ranks && *options_.ranks != environment_.gpus.size()) {
      throw UsageError(fmt::format(
          "--ranks {} is for emulated runs; here -g says how many of the {} GPUs, or add --emulate",
          *options_.ranks, environment_.gpus.size()));
    }
    machine_.ranks = static_cast<std::uint32_t>(environment_.gpus.size());
  }
  environment_.evidence = machine_.evidence;
  machine_.island_ranks = choose_islands();
  environment_.ranks = machine_.ranks;
  environment_.world = emulated ? "emulated" : std::string(name_of(options_.world.value_or(World::threads)));
  choose_bundles(say);
  if (!options_.tuning.empty()) read_tuning(say);
}

void Session::read_tuning(const Say& say) {
  const std::string name = fmt::format("--tuning {}", options_.tuning.string());
  std::ifstream file(options_.tuning, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file.is_open() || file.bad())
    throw UsageError(
        fmt::format("{}: there is no such file, or it cannot be read; `arbench tune` makes one", name));
  Tuning tuning = tuning_from_json(name, text);
  check_tuning(name, tuning, fingerprint_of(environment_.gpus), machine_.ranks, machine_.island_ranks);
  for (const Dtype dtype : dtypes_from(options_.dtypes)) {
    if (dtype == tuning.dtype) continue;
    say(fmt::format("{} timed {}; its choices go by bytes and are taken for {} too", name,
                    name_of(tuning.dtype), name_of(dtype)));
  }
  machine_.tuning = std::move(tuning);
}

void Session::choose_peers() {
  // Workers of another build come with its peers.
  const fs::path folder =
      options_.worker_program == "/proc/self/exe" ? program_folder() : options_.worker_program.parent_path();
  peers_ = peer_programs(options_.peers, folder);
  for (const auto& [name, program] : peers_) machine_.peers.push_back(name);
  if (options_.world.value_or(World::threads) != World::processes)
    machine_.peer_problem = peer_needs_processes;
  check_peers(options_.contenders, machine_.peers);
}

bool Session::wants(bool (*which)(const CatalogRow& row)) const {
  if (!options_.contenders_take_part) return false;
  if (options_.contenders.empty()) return true;
  return std::ranges::any_of(options_.contenders, [&](const std::string& name) {
    const CatalogRow* row = find_contender(name);
    return row != nullptr && which(*row);
  });
}

std::uint32_t Session::choose_islands() const {
  const std::uint32_t ranks = machine_.ranks;
  const auto fits = [&](std::uint32_t island) {
    return island >= 2 && ranks % island == 0 && ranks / island >= 2;
  };
  if (options_.island_ranks) {
    if (!fits(*options_.island_ranks)) {
      throw UsageError(fmt::format(
          "--islands {}: {} ranks do not form 2 or more islands of {}; give 2 or more that divide "
          "them, or leave it out",
          *options_.island_ranks, ranks, *options_.island_ranks));
    }
    return *options_.island_ranks;
  }
  if (machine_.evidence == Evidence::emulated) return fits(ranks / 2) && ranks % 2 == 0 ? ranks / 2 : 0;
  std::vector<int> nodes;
  for (const DeviceInfo& gpu : environment_.gpus) nodes.push_back(numa_node_of(gpu));
  const std::uint32_t island = equal_runs(nodes);
  return fits(island) ? island : 0;
}

void Session::choose_bundles(const Say& say) {
  const fs::path folder = options_.bundles.empty() ? default_bundle_folder() : options_.bundles;
  const bool emulated = machine_.evidence == Evidence::emulated;
  found_ = find_bundles(folder);
  if (!options_.support_bundles.empty()) found_.support = find_bundles(options_.support_bundles).support;
  std::vector<std::string> names;
  for (const Bundle& bundle : found_.bundles) names.push_back(bundle.name);
  for (const BundleProblem& problem : found_.problems) {
    if (problem.name != support_bundle) names.push_back(problem.name);
  }
  if (emulated) {
    // Emulated kernels need no bundle; what the user names is checked all the same.
    if (!options_.bundles.empty() && !found_.problems.empty()) {
      throw EnvironmentError(found_.problems.front().sentence);
    }
    if (!names.empty()) {
      if (!options_.toolkits.empty()) select_bundles(options_.toolkits, names);
    } else {
      static const std::regex shape("[0-9]+\\.[0-9]+(-nvrtc|-nvcc)?");
      for (const std::string& toolkit : options_.toolkits) {
        if (std::regex_match(toolkit, shape)) continue;
        throw UsageError(fmt::format("no toolkit '{}'; names are such as 12.8 or 13.0-nvrtc", toolkit));
      }
    }
    return;
  }

  std::vector<std::string> wanted;
  if (wants(runs_kernels)) {
    if (names.empty()) {
      throw EnvironmentError(
          fmt::format("there are no kernel bundles in {}; build the target `bundles`, or --bundles DIR",
                      folder.string()));
    }
    wanted = select_bundles(options_.toolkits, names);
  }
  wanted.emplace_back(support_bundle);
  std::vector<std::string> architectures;
  for (const DeviceInfo& gpu : environment_.gpus) architectures.push_back(gpu.architecture);
  for (const std::string& name : wanted) {
    for (const BundleProblem& problem : found_.problems) {
      if (problem.name == name) throw EnvironmentError(problem.sentence);
    }
    const Bundle* bundle = found_.support && name == support_bundle ? &*found_.support : nullptr;
    for (const Bundle& there : found_.bundles) {
      if (there.name == name) bundle = &there;
    }
    if (bundle == nullptr) {
      throw EnvironmentError(
          fmt::format("there is no bundle {} in {}; build the target `bundles`, or --bundles DIR", name,
                      folder.string()));
    }
    const std::string problem = hardware_problem(*bundle, architectures);
    if (!problem.empty()) throw EnvironmentError(problem);
    if (name == support_bundle) {
      environment_.support = *bundle;
    } else {
      environment_.bundles.push_back(*bundle);
      machine_.bundles.push_back(name);
    }
  }
  for (const BundleProblem& problem : found_.problems) say("left out: " + problem.sentence);
}

std::unique_ptr<Backend> Session::launch(const Say& say, bool with_limits) {
  if (machine_.evidence == Evidence::emulated) return make_emulated_box(machine_.ranks);
  auto backend = start_workers(say, machine_.ranks);
  if (with_limits) {
    const auto limits = backend->limits();
    if (!environment_.limits) environment_.limits = limits;
  }
  return backend;
}

std::unique_ptr<Backend> Session::launch_team(const Say& say, std::uint32_t ranks) {
  if (machine_.evidence == Evidence::emulated) return make_emulated_box(ranks);
  return start_workers(say, ranks);
}

std::unique_ptr<WorkerBackend> Session::launch_workers(const Say& say) {
  return start_workers(say, machine_.ranks);
}

std::unique_ptr<WorkerBackend> Session::start_workers(const Say& say, std::uint32_t ranks) {
  const std::vector<DeviceInfo>& gpus = environment_.gpus;
  const bool with_nccl =
      wants([](const CatalogRow& row) { return row.source == Source::nccl; }) && ranks <= gpus.size();
  WorkerSetup setup;
  setup.program = options_.worker_program;
  setup.variables = options_.worker_variables;
  setup.world = options_.world.value_or(World::threads);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    setup.devices.push_back(gpus[rank % gpus.size()].ordinal);
  for (const Bundle& bundle : environment_.bundles) setup.bundle_folders.push_back(bundle.folder.string());
  setup.support_folder = environment_.support->folder.string();
  if (with_nccl) {
    const bool first = environment_.nccls.empty();
    setup.nccl_alternatives = options_.nccl_paths.empty() && first;
    if (first) {
      setup.nccl_libraries = nccl_candidates(options_.nccl_paths);
    } else {
      for (const NcclFound& nccl : environment_.nccls) setup.nccl_libraries.push_back(nccl.path);
    }
  }
  setup.peers = peers_;
  setup.deadline = std::chrono::seconds(options_.deadline_s);
  setup.cell_allowance = std::chrono::seconds(options_.cell_allowance_s);
  setup.log_folder = log_folder_;
  setup.interrupt = &interrupt_;
  auto backend = std::make_unique<WorkerBackend>(setup);
  if (machine_.nccls.empty() && with_nccl) {
    machine_.nccls = backend->nccl_names();
    const std::vector<std::string> problems = backend->nccl_window_problems();
    for (std::size_t i = 0; i < problems.size(); ++i) {
      if (!problems[i].empty()) machine_.nccl_window_problems[machine_.nccls[i]] = problems[i];
    }
    const std::vector<std::string> paths = backend->nccl_paths();
    for (std::size_t i = 0; i < paths.size(); ++i)
      environment_.nccls.push_back({machine_.nccls[i], paths[i]});
    if (paths.empty()) {
      say("no NCCL takes part: the loader finds no libnccl.so.2 and none lies in the usual places; --nccl "
          "PATH takes one");
    }
  }
  return backend;
}

std::optional<std::uint32_t> Session::gpus() const {
  if (environment_.gpus.empty()) return std::nullopt;
  return static_cast<std::uint32_t>(environment_.gpus.size());
}

std::string Session::hardware_name() const {
  if (environment_.gpus.empty()) return fmt::format("emulated-{}ranks", machine_.ranks);
  std::string name = environment_.gpus.front().name;
  for (const char* vendor : {"NVIDIA GeForce ", "NVIDIA "}) {
    if (name.starts_with(vendor)) name.erase(0, std::string_view(vendor).size());
  }
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return fmt::format("{}x{}", environment_.gpus.size(), name);
}

}  // namespace arb
