#include "probe/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <future>
#include <stdexcept>

#include "errors.h"
#include "probe/child.h"
#include "probe/experiments.h"
#include "probe/json.h"
#include "probe/page.h"
#include "probe/rules.h"
#include "probe/version.h"
#include "text.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;

// A record's: what is late is said to be, and the rest is still recorded.
constexpr std::chrono::milliseconds record_patience{1'300};
constexpr std::chrono::milliseconds record_deadline{1'900};
// Set for the children: a program that takes "probe-child" for an order to probe must not start others for
// ever. A record's child may ask NVML and the driver, whose children may ask nobody.
constexpr const char* within_probe = "ARBENCH_WITHIN_PROBE";
constexpr std::string_view within_record = "record";

Answers ask(const fs::path& program, const std::string& whom, std::chrono::milliseconds patience,
            std::string& why) {
  const ChildSaid said = run_child({.program = program,
                                    .arguments = {"probe-child", whom},
                                    .environment = {{within_probe, "1"}},
                                    .deadline = patience});
  why = said.problem();
  if (!why.empty()) {
    why = "the process that asked was lost: " + why;
    return {};
  }
  try {
    return answers_from_json(said.out);
  } catch (const std::invalid_argument&) {
    why = "the process that asked answered nonsense";
    return {};
  }
}

// The driver's answers belong to NVML's GPUs by UUID; what only the driver shows is added.
void join(Answers& all, const Answers& driver) {
  all.driver_why = driver.driver_why;
  if (driver.cuda_driver) all.cuda_driver = driver.cuda_driver;
  std::map<std::uint32_t, std::uint32_t> index_of;  // by the driver's ordinal
  for (const GpuAnswer& one : driver.gpus) {
    auto found = std::ranges::find_if(
        all.gpus, [&](const GpuAnswer& gpu) { return gpu.uuid && one.uuid && *gpu.uuid == *one.uuid; });
    if (found == all.gpus.end()) {
      GpuAnswer added = one;
      added.index = static_cast<std::uint32_t>(all.gpus.size());
      all.gpus.push_back(added);
      found = all.gpus.end() - 1;
    } else {
      found->ordinal = one.ordinal;
      found->multicast = one.multicast;
      found->vmm_file_descriptor = one.vmm_file_descriptor;
      found->cluster_launch = one.cluster_launch;
      if (!found->compute_capability) found->compute_capability = one.compute_capability;
      if (!found->memory_bytes) found->memory_bytes = one.memory_bytes;
      if (!found->pci_address) found->pci_address = one.pci_address;
    }
    if (one.ordinal) index_of[*one.ordinal] = found->index;
  }
  for (const PairAnswer& one : driver.pairs) {
    const auto from = index_of.find(one.from);
    const auto to = index_of.find(one.to);
    if (from == index_of.end() || to == index_of.end()) continue;
    const auto found = std::ranges::find_if(all.pairs, [&](const PairAnswer& pair) {
      return pair.from == from->second && pair.to == to->second;
    });
    if (found != all.pairs.end()) {
      found->driver_access = one.driver_access;
    } else {
      all.pairs.push_back({.from = from->second,
                           .to = to->second,
                           .common_ancestor = {},
                           .p2p_read = {},
                           .p2p_write = {},
                           .p2p_nvlink = {},
                           .p2p_atomics = {},
                           .driver_access = one.driver_access});
    }
  }
}

// The newest toolkit that the driver supports, where that is newer than the one in use.
std::map<std::string, std::string> default_assumption(const Facts& facts) {
  const auto supported = Version::parse(facts.driver_cuda);
  if (facts.gpus.empty() || !supported) return {};
  const auto used = Version::parse(facts.jit_nvcc ? facts.jit_nvcc->version : "0");
  if (used && *used >= *supported) return {};
  return {{"toolkit", facts.driver_cuda}};
}

}  // namespace

Answers ask_machine(const fs::path& program, std::chrono::milliseconds patience) {
  if (const char* const within = std::getenv(within_probe); within != nullptr && within != within_record) {
    Answers none;
    none.nvml_why = none.driver_why = "this process is itself a child of a probe";
    return none;
  }
  std::string nvml_why;
  std::string driver_why;
  auto driver_future =
      std::async(std::launch::async, [&] { return ask(program, "driver", patience, driver_why); });
  Answers all = ask(program, "nvml", patience, nvml_why);
  Answers driver = driver_future.get();
  if (!nvml_why.empty()) all.nvml_why = nvml_why;
  if (!driver_why.empty()) driver.driver_why = driver_why;
  join(all, driver);
  return all;
}

std::string report(const Box& box, const ProbeOptions& options) {
  const RuleSet& rules = built_in_rules();
  Facts facts = find_facts(box, {.python = options.python, .driver_cuda = rules.driver_cuda});
  if (!options.python.empty() && facts.python.prefix.empty())
    throw UsageError(fmt::format("--python {}: there is no such program or environment", options.python));
  Report report;
  if (options.deep) {
    if (!box.is_live())
      throw UsageError("--deep makes experiments on this machine; it cannot be combined with --box");
    report.experiments = run_experiments(box, facts, {.program = options.program});
  }
  report.facts = &facts;
  report.with_sources = options.sources;
  report.verdicts = judge(rules, facts.map);
  const auto assumed = options.what_if.empty() ? default_assumption(facts) : options.what_if;
  if (!assumed.empty()) report.what_if = what_if(rules, facts.map, assumed);
  switch (options.output) {
    case Output::json:
      return report_to_json(report, 2) + "\n";
    case Output::markdown:
      return markdown(report, box, options.redact);
    case Output::record: {
      const Names names(box);
      return report_to_json(report, -1, &names) + "\n";
    }
    default:
      return page(report);
  }
}

std::string report(const ProbeOptions& options) {
  if (!options.box.empty()) return report(Box::recorded(options.box), options);
  ProbeOptions wanted = options;
  // As the shell means it; a bare name is looked for on PATH.
  if (wanted.python.starts_with("./")) wanted.python.erase(0, 2);
  std::error_code error;
  if (wanted.python.find('/') != std::string::npos || fs::is_directory(wanted.python, error))
    wanted.python = fs::absolute(wanted.python).string();
  return report(Box::live(ask_machine(wanted.program, wanted.patience)), wanted);
}

std::string record() {
  ProbeOptions options;
  options.output = Output::record;
  options.patience = record_patience;
  return report(options);
}

std::string probe_json(const fs::path& program) noexcept {
  try {
    std::string why = "this process is itself a child of a probe";
    if (std::getenv(within_probe) == nullptr) {
      const ChildSaid said = run_child({.program = program,
                                        .arguments = {"probe-child", "record"},
                                        .environment = {{within_probe, std::string(within_record)}},
                                        .deadline = record_deadline});
      why = said.problem();
      if (why.empty() && is_report(said.out)) return said.out;
      if (why.empty()) why = "it answered nonsense";
    }
    return error_report("the process that looked: " + why);
  } catch (const std::exception&) {
    return {};
  }
}

std::map<std::string, std::string> assumptions_from(const std::string& text) {
  std::map<std::string, std::string> assumptions;
  for (const std::string& part : split_list(text)) {
    const std::size_t equal = part.find('=');
    if (equal == std::string::npos || equal == 0 || equal + 1 == part.size())
      throw UsageError(fmt::format("--what-if {}: write NAME=VERSION, such as toolkit=13.1", part));
    assumptions[part.substr(0, equal)] = part.substr(equal + 1);
  }
  return assumptions;
}

}  // namespace arb::probe
