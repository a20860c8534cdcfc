#include "probe/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "errors.h"

namespace arb::probe {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 2;

template <typename Value>
void put(Json& json, const char* name, const std::optional<Value>& value) {
  if (value) json[name] = *value;
}

template <typename Value>
void get(const Json& json, const char* name, std::optional<Value>& value) {
  if (const auto found = json.find(name); found != json.end() && !found->is_null())
    value = found->get<Value>();
}

// In reports nothing is left out: what is not known is null.
template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json json_of(const GpuAnswer& gpu) {
  Json json = {{"index", gpu.index}};
  put(json, "ordinal", gpu.ordinal);
  put(json, "name", gpu.name);
  put(json, "uuid", gpu.uuid);
  put(json, "pci_address", gpu.pci_address);
  put(json, "compute_capability", gpu.compute_capability);
  put(json, "memory_bytes", gpu.memory_bytes);
  put(json, "bar1_bytes", gpu.bar1_bytes);
  put(json, "pcie_generation", gpu.pcie_generation);
  put(json, "pcie_width_lanes", gpu.pcie_width_lanes);
  put(json, "pcie_generation_max", gpu.pcie_generation_max);
  put(json, "pcie_width_max_lanes", gpu.pcie_width_max_lanes);
  put(json, "nvlinks_active", gpu.nvlinks_active);
  put(json, "multicast", gpu.multicast);
  put(json, "vmm_file_descriptor", gpu.vmm_file_descriptor);
  put(json, "cluster_launch", gpu.cluster_launch);
  return json;
}

GpuAnswer gpu_of(const Json& json) {
  GpuAnswer gpu;
  gpu.index = json.at("index").get<std::uint32_t>();
  get(json, "ordinal", gpu.ordinal);
  get(json, "name", gpu.name);
  get(json, "uuid", gpu.uuid);
  get(json, "pci_address", gpu.pci_address);
  get(json, "compute_capability", gpu.compute_capability);
  get(json, "memory_bytes", gpu.memory_bytes);
  get(json, "bar1_bytes", gpu.bar1_bytes);
  get(json, "pcie_generation", gpu.pcie_generation);
  get(json, "pcie_width_lanes", gpu.pcie_width_lanes);
  get(json, "pcie_generation_max", gpu.pcie_generation_max);
  get(json, "pcie_width_max_lanes", gpu.pcie_width_max_lanes);
  get(json, "nvlinks_active", gpu.nvlinks_active);
  get(json, "multicast", gpu.multicast);
  get(json, "vmm_file_descriptor", gpu.vmm_file_descriptor);
  get(json, "cluster_launch", gpu.cluster_launch);
  return gpu;
}

Json json_of(const PairAnswer& pair) {
  Json json = {{"from", pair.from}, {"to", pair.to}};
  put(json, "common_ancestor", pair.common_ancestor);
  put(json, "p2p_read", pair.p2p_read);
  put(json, "p2p_write", pair.p2p_write);
  put(json, "p2p_nvlink", pair.p2p_nvlink);
  put(json, "p2p_atomics", pair.p2p_atomics);
  put(json, "driver_access", pair.driver_access);
  return json;
}

PairAnswer pair_of(const Json& json) {
  PairAnswer pair;
  pair.from = json.at("from").get<std::uint32_t>();
  pair.to = json.at("to").get<std::uint32_t>();
  get(json, "common_ancestor", pair.common_ancestor);
  get(json, "p2p_read", pair.p2p_read);
  get(json, "p2p_write", pair.p2p_write);
  get(json, "p2p_nvlink", pair.p2p_nvlink);
  get(json, "p2p_atomics", pair.p2p_atomics);
  get(json, "driver_access", pair.driver_access);
  return pair;
}

Json json_of(const Answers& answers) {
  Json json = {{"nvml_why", answers.nvml_why}, {"driver_why", answers.driver_why}};
  put(json, "driver", answers.driver);
  put(json, "cuda_driver", answers.cuda_driver);
  json["gpus"] = Json::array();
  for (const GpuAnswer& gpu : answers.gpus) json["gpus"].push_back(json_of(gpu));
  json["pairs"] = Json::array();
  for (const PairAnswer& pair : answers.pairs) json["pairs"].push_back(json_of(pair));
  return json;
}

// A recorded box may give one "all_pairs" instead of each pair alike.
Answers answers_of(const Json& json) {
  Answers answers;
  answers.nvml_why = json.value("nvml_why", "");
  answers.driver_why = json.value("driver_why", "");
  get(json, "driver", answers.driver);
  get(json, "cuda_driver", answers.cuda_driver);
  for (const Json& gpu : json.value("gpus", Json::array())) answers.gpus.push_back(gpu_of(gpu));
  if (const auto all = json.find("all_pairs"); all != json.end()) {
    for (const GpuAnswer& from : answers.gpus) {
      for (const GpuAnswer& to : answers.gpus) {
        if (from.index == to.index) continue;
        Json pair = *all;
        pair["from"] = from.index;
        pair["to"] = to.index;
        answers.pairs.push_back(pair_of(pair));
      }
    }
  }
  for (const Json& pair : json.value("pairs", Json::array())) answers.pairs.push_back(pair_of(pair));
  return answers;
}

std::vector<std::string> texts_of(const Json& json, const char* name) {
  std::vector<std::string> texts;
  for (const Json& text : json.value(name, Json::array())) texts.push_back(text.get<std::string>());
  return texts;
}

Json json_of(const Finding& finding) {
  return {{"rule", finding.rule},
          {"kind", text_or_null(finding.kind)},
          {"because", finding.because},
          {"way_out", text_or_null(finding.way_out)},
          {"sources", finding.sources}};
}

Json json_of(const Verdict& verdict) {
  Json json = {{"approach", verdict.approach},       {"title", verdict.title},    {"status", verdict.status},
               {"kind", text_or_null(verdict.kind)}, {"findings", Json::array()}, {"notes", Json::array()},
               {"not_seen", verdict.not_seen}};
  for (const Finding& finding : verdict.findings) json["findings"].push_back(json_of(finding));
  for (const Finding& finding : verdict.notes) json["notes"].push_back(json_of(finding));
  return json;
}

Json json_of(const WhatIf& what_if) {
  Json json = {{"assumptions", what_if.assumptions},
               {"newer_libraries", what_if.libraries},
               {"cheaper_toolkit", text_or_null(what_if.cheaper)},
               {"changes", Json::array()},
               {"chain", Json::array()}};
  for (const Change& change : what_if.changes)
    json["changes"].push_back({{"approach", change.approach},
                               {"now", change.now},
                               {"then", change.then},
                               {"effect", change.effect},
                               {"newer_libraries_alone", change.libraries_alone},
                               {"kind", text_or_null(change.kind)},
                               {"because", text_or_null(change.because)}});
  for (const ChainStep& step : what_if.chain)
    json["chain"].push_back({{"link", step.link},
                             {"rule", step.rule},
                             {"now", step.now},
                             {"action", step.action},
                             {"text", step.text},
                             {"breaks", step.breaks},
                             {"sources", step.sources}});
  return json;
}

Json json_of(const std::optional<Nvcc>& nvcc) {
  if (!nvcc) return nullptr;
  return {{"path", nvcc->path},
          {"toolkit", nvcc->toolkit},
          {"version", text_or_null(nvcc->version)},
          {"found", nvcc->found},
          {"runs", nvcc->runs}};
}

const char* name_of(Fact::State state) {
  switch (state) {
    case Fact::State::known:
      return "known";
    case Fact::State::absent:
      return "absent";
    default:
      return "unknown";
  }
}

Json json_of(const Facts& facts) {
  Json json;
  json["driver"] = {{"version", text_or_null(facts.driver)},
                    {"cuda", text_or_null(facts.driver_cuda)},
                    {"cuda_from", text_or_null(facts.driver_cuda_from)},
                    {"module_kind", text_or_null(facts.host.module_kind)},
                    {"module_parameters", facts.host.module_parameters}};
  json["gpus"] = Json::array();
  for (const Gpu& gpu : facts.gpus) {
    Json one = json_of(gpu.answer);
    one["pci_path"] = text_or_null(gpu.pci_path);
    one["numa_node"] = or_null(gpu.numa_node);
    one["slower_port"] = text_or_null(gpu.slowest_hop);
    one["iommu_translates"] = or_null(gpu.iommu_translates);
    one["acs_redirects"] = or_null(gpu.acs_redirects);
    one["kernel_driver"] = text_or_null(gpu.driver_module);
    json["gpus"].push_back(std::move(one));
  }
  json["pairs"] = Json::array();
  for (const PairAnswer& pair : facts.pairs) json["pairs"].push_back(json_of(pair));
  Json toolkits = {{"nvccs", Json::array()},
                   {"shell", json_of(facts.shell_nvcc)},
                   {"just_in_time", json_of(facts.jit_nvcc)},
                   {"just_in_time_why", facts.jit_why},
                   {"forward_compatibility", Json::array()}};
  for (const Nvcc& nvcc : facts.nvccs) toolkits["nvccs"].push_back(json_of(std::optional(nvcc)));
  for (const Compat& compat : facts.compats)
    toolkits["forward_compatibility"].push_back(
        {{"folder", compat.folder}, {"driver", compat.driver}, {"in_use", compat.in_use}});
  json["toolkits"] = std::move(toolkits);
  json["libraries"] = Json::array();
  for (const Library& library : facts.libraries)
    json["libraries"].push_back({{"kind", library.kind},
                                 {"path", library.path},
                                 {"version", text_or_null(library.version)},
                                 {"cuda", text_or_null(library.cuda)},
                                 {"source", library.source}});
  json["python"] = {{"program", text_or_null(facts.python.program)},
                    {"prefix", text_or_null(facts.python.prefix)},
                    {"version", text_or_null(facts.python.version)},
                    {"chosen", text_or_null(facts.python.chosen)},
                    {"packages", Json::array()}};
  for (const Package& package : facts.python.packages)
    json["python"]["packages"].push_back({{"name", package.name},
                                          {"version", text_or_null(package.version)},
                                          {"cuda", text_or_null(package.cuda)},
                                          {"evidence", package.evidence}});
  json["python"]["others"] = Json::array();
  for (const OtherPython& other : facts.other_pythons) {
    Json packages = Json::array();
    for (const Package& package : other.packages)
      packages.push_back({{"name", package.name},
                          {"version", text_or_null(package.version)},
                          {"cuda", text_or_null(package.cuda)},
                          {"evidence", package.evidence}});
    json["python"]["others"].push_back(
        {{"prefix", other.prefix}, {"found", other.found}, {"packages", std::move(packages)}});
  }
  const Host& host = facts.host;
  json["host"] = {
      {"kernel", text_or_null(host.kernel)},
      {"processor", text_or_null(host.processor)},
      {"sockets", or_null(host.sockets)},
      {"numa_nodes", or_null(host.numa_nodes)},
      {"virtual", or_null(host.is_virtual)},
      {"virtual_machine", text_or_null(host.virtual_machine)},
      {"container", text_or_null(host.container)},
      {"iommu_on", or_null(host.iommu_on)},
      {"iommu_options", text_or_null(host.iommu_options)},
      {"shared_memory_bytes", host.shared_memory ? Json(host.shared_memory->size_bytes) : Json(nullptr)}};
  json["unseen"] = Json::array();
  for (const Unseen& unseen : facts.unseen)
    json["unseen"].push_back({{"what", unseen.what}, {"why", unseen.why}});
  json["facts"] = Json::object();
  for (const auto& [name, fact] : facts.map) {
    Json one = {{"state", name_of(fact.state)}};
    if (fact.state == Fact::State::known) {
      one["value"] = fact.value;
    } else {
      one["why"] = fact.why;
    }
    json["facts"][name] = std::move(one);
  }
  return json;
}

void leave_out(const Names& names, Json& json) {
  if (json.is_string()) {
    json = names.left_out(json.get<std::string>());
  } else if (json.is_structured()) {
    for (Json& part : json) leave_out(names, part);
  }
}

}  // namespace

RecordedBox recorded_box_from_json(const std::string& text, const std::string& file) {
  try {
    const Json json = Json::parse(text);
    const Json none = Json::object();
    const auto part = [&](const char* name) -> const Json& {
      const auto found = json.find(name);
      return found == json.end() ? none : *found;
    };
    RecordedBox box;
    for (const auto& [name, value] : part("environment").items())
      box.environment[name] = value.get<std::string>();
    box.answers = answers_of(part("answers"));
    for (const auto& [path, space] : part("spaces").items()) {
      box.spaces[path] = {space.at("size_bytes").get<std::uint64_t>(),
                          space.at("free_bytes").get<std::uint64_t>()};
    }
    return box;
  } catch (const Json::exception& error) {
    throw EnvironmentError(fmt::format("{} is no recorded box: {}", file, error.what()));
  }
}

std::string answers_to_json(const Answers& answers) {
  return json_of(answers).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Answers answers_from_json(const std::string& text) {
  try {
    return answers_of(Json::parse(text));
  } catch (const Json::exception& error) {
    throw std::invalid_argument(error.what());
  }
}

RuleSet rules_from_json(const std::string& text) {
  RuleSet set;
  std::string row = "the file";
  try {
    const Json json = Json::parse(text);
    for (const auto& [branch, cuda] : json.at("driver_cuda").items())
      set.driver_cuda[branch] = cuda.get<std::string>();
    for (const auto& [major, version] : json.at("last_of_major").items())
      set.last_of_major[major] = version.get<std::string>();
    for (const auto& [library, version] : json.at("newest").items())
      set.newest[library] = version.get<std::string>();
    for (const Json& one : json.at("approaches"))
      set.approaches.push_back({one.at("id").get<std::string>(), one.at("title").get<std::string>()});
    for (const Json& link : json.at("links")) set.links.push_back(link.get<std::string>());
    for (const Json& one : json.at("rules")) {
      row = one.at("id").get<std::string>();
      set.rules.push_back({.id = row,
                           .approaches = texts_of(one, "approaches"),
                           .verdict = one.at("verdict").get<std::string>(),
                           .kind = one.at("kind").get<std::string>(),
                           .when = Condition(one.at("when").get<std::string>()),
                           .because = one.at("because").get<std::string>(),
                           .way_out = one.at("way_out").get<std::string>(),
                           .sources = texts_of(one, "sources")});
    }
    for (const Json& one : json.at("chain")) {
      row = one.at("id").get<std::string>();
      set.chain.push_back({.id = row,
                           .link = one.at("link").get<std::string>(),
                           .action = one.at("action").get<std::string>(),
                           .when = Condition(one.at("when").get<std::string>()),
                           .text = one.at("text").get<std::string>(),
                           .breaks = texts_of(one, "breaks"),
                           .sources = texts_of(one, "sources")});
    }
  } catch (const Json::exception& error) {
    throw std::invalid_argument(fmt::format("rules, {}: {}", row, error.what()));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("rules, {}: {}", row, error.what()));
  }
  return set;
}

std::string outcome_to_json(const Outcome& outcome) {
  return Json({{"worked", outcome.worked}, {"detail", outcome.detail}})
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::optional<Outcome> outcome_from_json(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("worked") || !json["worked"].is_boolean() ||
      !json.contains("detail") || !json["detail"].is_string())
    return std::nullopt;
  return Outcome{json["worked"].get<bool>(), json["detail"].get<std::string>()};
}

std::string report_to_json(const Report& report, int indent, const Names* left_out) {
  Json json = {{"schema", schema}, {"verdicts", Json::array()}};
  for (const Verdict& verdict : report.verdicts) json["verdicts"].push_back(json_of(verdict));
  json["what_if"] = report.what_if ? json_of(*report.what_if) : Json(nullptr);
  json["experiments"] = Json::array();
  for (const Experiment& one : report.experiments)
    json["experiments"].push_back(
        {{"id", one.id}, {"state", one.state}, {"detail", one.detail}, {"seconds", one.seconds}});
  const Json facts = json_of(*report.facts);
  json.update(facts);
  if (left_out != nullptr) leave_out(*left_out, json);
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

bool is_report(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  return json.is_object() && json.contains("schema") && json.contains("facts");
}

std::string error_report(const std::string& why) {
  return Json{{"schema", schema}, {"error", why}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace arb::probe
