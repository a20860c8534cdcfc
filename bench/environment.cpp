#include "environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "coordinator/bundles.h"
#include "coordinator/machine.h"
#include "probe/names.h"
#include "probe/probe.h"

namespace arb {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json json_of(const Bundle& bundle) {
  return {{"name", bundle.name},
          {"compiler", bundle.compiler},
          {"compiler_version", bundle.compiler_version},
          {"source_hash", bundle.source_hash}};
}

// Never a reason for a run to fail.
Json probe_of(const std::filesystem::path& program) {
  Json json = Json::parse(probe::probe_json(program), nullptr, false);
  return json.is_discarded() ? Json(nullptr) : json;
}

}  // namespace

std::map<std::string, std::string> gpu_variables() {
  std::map<std::string, std::string> found;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    if (!variable.starts_with("CUDA_") && !variable.starts_with("NCCL_")) continue;
    const std::size_t equal = variable.find('=');
    if (equal != std::string_view::npos) found.emplace(variable.substr(0, equal), variable.substr(equal + 1));
  }
  return found;
}

std::string host_compiler() {
  return "g++ " __VERSION__;
}

std::string headline(const Environment& environment) {
  std::string text = fmt::format("# arbench {}: {}, {} ranks", ARB_VERSION, name_of(environment.evidence),
                                 environment.ranks);
  if (environment.gpus.empty()) return text + " on the emulated machine: data and traffic, no times\n";
  text += fmt::format(" on {} GPUs as {}, driver {}, CUDA {}\n", environment.gpus.size(), environment.world,
                      environment.driver, cuda_version_text(environment.cuda_driver));
  for (std::size_t rank = 0; rank < environment.gpus.size(); ++rank) {
    const DeviceInfo& gpu = environment.gpus[rank];
    text += fmt::format("#   rank {}: GPU {} {} {} {}\n", rank, gpu.ordinal, gpu.name, gpu.architecture,
                        gpu.pci_address);
  }
  for (const NcclFound& nccl : environment.nccls)
    text += fmt::format("#   NCCL {}: {}\n", nccl.name, nccl.path);
  if (const auto& limits = environment.limits) {
    text += fmt::format(
        "#   limits: node {:.2f} us, flag {:.2f} us, {:.1f} GB/s a rank ({}); stamps {:.2f} us, clock tick "
        "{:.0f} ns\n",
        limits->node_us_k20, limits->flag_us, limits->bandwidth_gbps, limits->bandwidth_engine,
        limits->stamp_us, limits->clock_tick_ns);
  }
  return text;
}

std::string environment_json(const Environment& environment, const std::filesystem::path& probe_program) {
  const probe::Names names(probe::Box::live({}));
  Json json = {{"arbench", ARB_VERSION},
               {"evidence", name_of(environment.evidence)},
               {"ranks", environment.ranks},
               {"world", environment.world},
               {"host_compiler", host_compiler()}};
  if (!environment.why_emulated.empty()) json["why_emulated"] = environment.why_emulated;
  if (environment.cuda_driver != 0) {
    json["driver"] = environment.driver;
    json["cuda_driver"] = cuda_version_text(environment.cuda_driver);
  }
  json["gpus"] = Json::array();
  for (const DeviceInfo& gpu : environment.gpus) {
    json["gpus"].push_back({{"ordinal", gpu.ordinal},
                            {"name", gpu.name},
                            {"uuid", gpu.uuid},
                            {"architecture", gpu.architecture},
                            {"pci_address", gpu.pci_address},
                            {"memory_bytes", gpu.memory_bytes},
                            {"peers", gpu.peers}});
  }
  json["bundles"] = Json::array();
  for (const Bundle& bundle : environment.bundles) json["bundles"].push_back(json_of(bundle));
  if (environment.support) json["support"] = json_of(*environment.support);
  json["nccl"] = Json::array();
  for (const NcclFound& nccl : environment.nccls)
    json["nccl"].push_back({{"version", nccl.name}, {"path", names.left_out(nccl.path)}});
  if (const auto& limits = environment.limits) {
    json["limits"] = {{"node_us_k20", limits->node_us_k20},
                      {"graph_start_us", limits->graph_start_us},
                      {"node_us", limits->node_us},
                      {"isolated_node_us", limits->isolated_node_us},
                      {"flag_us", limits->flag_us},
                      {"bandwidth_gbps", limits->bandwidth_gbps},
                      {"bandwidth_engine", limits->bandwidth_engine},
                      {"stamp_us", limits->stamp_us},
                      {"clock_tick_ns", limits->clock_tick_ns},
                      {"measured_by", "one process that holds all ranks"}};
  }
  if (!environment.during.empty()) {
    json["gpus_during"] = Json::array();
    for (const GpuDuring& gpu : environment.during) json["gpus_during"].push_back(Json::parse(to_json(gpu)));
  }
  json["variables"] = Json::object();
  for (const auto& [name, value] : gpu_variables()) json["variables"][name] = names.left_out(value);
  json["probe"] = probe_program.empty() ? Json(nullptr) : probe_of(probe_program);
  return text_of(json);
}

std::string manifest_json(const Environment& environment) {
  Json bundles = Json::object();
  for (const Bundle& bundle : environment.bundles) bundles[bundle.name] = Json::parse(manifest_text(bundle));
  if (environment.support)
    bundles[environment.support->name] = Json::parse(manifest_text(*environment.support));
  return text_of({{"bundles", std::move(bundles)}});
}

std::map<std::string, std::string> environment_pairs(const Environment& environment) {
  const probe::Names names(probe::Box::live({}));
  std::map<std::string, std::string> pairs = {{"arbench", ARB_VERSION},
                                              {"evidence", std::string(name_of(environment.evidence))},
                                              {"ranks", std::to_string(environment.ranks)},
                                              {"world", environment.world},
                                              {"host_compiler", host_compiler()}};
  if (environment.evidence == Evidence::emulated) {
    pairs["emulated_cells"] = "left out: they have no time; rows.csv has their data and traffic";
  }
  if (environment.cuda_driver != 0) {
    pairs["driver"] = environment.driver;
    pairs["cuda_driver"] = cuda_version_text(environment.cuda_driver);
  }
  for (std::size_t rank = 0; rank < environment.gpus.size(); ++rank) {
    const DeviceInfo& gpu = environment.gpus[rank];
    pairs[fmt::format("gpu{}", rank)] = fmt::format("{} {} {}", gpu.name, gpu.architecture, gpu.uuid);
  }
  for (const Bundle& bundle : environment.bundles) {
    pairs["bundle_" + bundle.name] =
        fmt::format("{}, sources {}", bundle.compiler_version, bundle.source_hash);
  }
  for (const NcclFound& nccl : environment.nccls) pairs["nccl_" + nccl.name] = names.left_out(nccl.path);
  for (const auto& [name, value] : gpu_variables()) pairs[name] = names.left_out(value);
  return pairs;
}

}  // namespace arb
