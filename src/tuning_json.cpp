#include <arb/abi.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "text.h"
#include "tuning.h"

namespace arb {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* schema = "arbench tuning";
constexpr int version = 1;

std::vector<std::string> choosable() {
  std::vector<std::string> names;
  for (const CatalogRow& row : catalog()) {
    if (can_be_chosen(row, 1)) names.emplace_back(row.contender);
  }
  return names;
}

// Why an entry cannot be, or empty.
std::string problem_of(const Tuning& tuning, const TunedSize& entry) {
  const CatalogRow* const row = find_contender(entry.contender);
  if (row == nullptr) {
    return fmt::format("there is no contender '{}'; there are {}", one_line(entry.contender, 60),
                       enumerate(choosable()));
  }
  if (!can_be_chosen(*row, tuning.island_ranks)) {
    return row->needs_islands
               ? fmt::format("{} needs islands, and it was tuned without", entry.contender)
               : fmt::format("{} cannot be chosen; there are {}", entry.contender, enumerate(choosable()));
  }
  const auto [blocks, threads] = entry.shape;
  if (blocks == 0 || blocks > max_blocks || threads == 0 || threads > max_threads || threads % 32 != 0) {
    return fmt::format("{}x{} is no launch shape; 1 to {} blocks have 32 to {} threads, whole warps", blocks,
                       threads, max_blocks, max_threads);
  }
  if (!std::isfinite(entry.p50_us) || entry.p50_us <= 0) return "its time is no positive number";
  if (entry.evidence == Evidence::emulated) return "emulated cells have no time, so nothing was tuned";
  return "";
}

TunedSize entry_from(const Json& json) {
  TunedSize entry;
  entry.bytes = json.at("bytes").get<std::uint64_t>();
  entry.contender = json.at("contender").get<std::string>();
  entry.shape = {json.at("blocks").get<std::uint32_t>(), json.at("threads").get<std::uint32_t>()};
  entry.p50_us = json.at("p50_us").get<double>();
  entry.launches = json.at("launches").get<std::uint32_t>();
  const auto evidence = json.at("evidence").get<std::string>();
  for (const Evidence known : {Evidence::measured, Evidence::modelled, Evidence::emulated}) {
    if (name_of(known) != evidence) continue;
    entry.evidence = known;
    return entry;
  }
  throw EnvironmentError(fmt::format("there is no evidence '{}'", one_line(evidence, 60)));
}

}  // namespace

std::string to_json(const Tuning& tuning) {
  Json sizes = Json::array();
  for (const TunedSize& entry : tuning.sizes) {
    sizes.push_back({{"bytes", entry.bytes},
                     {"contender", entry.contender},
                     {"blocks", entry.shape.blocks},
                     {"threads", entry.shape.threads},
                     {"p50_us", entry.p50_us},
                     {"evidence", name_of(entry.evidence)},
                     {"launches", entry.launches}});
  }
  const Json document = {{"schema", schema},
                         {"version", version},
                         {"machine",
                          {{"gpus", tuning.machine.gpus},
                           {"peers", tuning.machine.peers},
                           {"numa_nodes", tuning.machine.numa_nodes}}},
                         {"ranks", tuning.ranks},
                         {"island_ranks", tuning.island_ranks},
                         {"dtype", name_of(tuning.dtype)},
                         {"bundle", tuning.bundle},
                         {"sizes", std::move(sizes)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Tuning tuning_from_json(const std::string& name, const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    return EnvironmentError(fmt::format("{} is no tuning: {}; `arbench tune` makes one", name, why));
  };
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw refuse("it is cut short, or no JSON");
  Tuning tuning;
  try {
    if (json.at("schema") != schema || json.at("version") != version)
      throw refuse(fmt::format("its schema is not '{}', version {}", schema, version));
    const Json& machine = json.at("machine");
    tuning.machine.gpus = machine.at("gpus").get<std::vector<std::string>>();
    tuning.machine.peers = machine.at("peers").get<std::vector<std::vector<std::uint32_t>>>();
    tuning.machine.numa_nodes = machine.at("numa_nodes").get<std::vector<int>>();
    tuning.ranks = json.at("ranks").get<std::uint32_t>();
    tuning.island_ranks = json.at("island_ranks").get<std::uint32_t>();
    tuning.bundle = json.at("bundle").get<std::string>();
    const auto dtype = dtype_from(json.at("dtype").get<std::string>());
    if (!dtype) throw refuse("its dtype is not known");
    tuning.dtype = *dtype;
    for (const Json& entry : json.at("sizes")) {
      try {
        tuning.sizes.push_back(entry_from(entry));
      } catch (const EnvironmentError& error) {
        throw refuse(error.what());
      }
    }
  } catch (const Json::exception& error) {
    throw refuse(one_line(error.what(), 160));
  }
  if (tuning.sizes.empty()) throw refuse("it has no sizes");
  for (std::size_t i = 0; i < tuning.sizes.size(); ++i) {
    const TunedSize& entry = tuning.sizes[i];
    if (i > 0 && entry.bytes <= tuning.sizes[i - 1].bytes) throw refuse("its sizes do not ascend");
    const std::string problem = problem_of(tuning, entry);
    if (!problem.empty()) throw refuse(fmt::format("at {} bytes {}", entry.bytes, problem));
  }
  return tuning;
}

}  // namespace arb
