#include <arb/abi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
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
  if (entry.shape.threads % 32 != 0)
    return fmt::format("{} threads are no whole warps of 32", entry.shape.threads);
  if (!std::isfinite(entry.p50_us) || entry.p50_us <= 0) return "its time is no positive number";
  if (entry.evidence == Evidence::emulated) return "emulated cells have no time, so nothing was tuned";
  return "";
}

// The readers below throw EnvironmentError with what is wrong of the file: "it has no ranks".
const Json& part(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) throw EnvironmentError(fmt::format("it has no {}", key));
  return object.at(key);
}
std::uint64_t whole(const Json& value, const char* what, std::uint64_t least, std::uint64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least || value.get<std::uint64_t>() > most)
    throw EnvironmentError(fmt::format("{} is no whole number from {} to {}", what, least, most));
  return value.get<std::uint64_t>();
}
std::uint32_t whole32(const Json& object, const char* key, std::uint32_t least, std::uint32_t most) {
  return static_cast<std::uint32_t>(whole(part(object, key), key, least, most));
}
template <class T>
T of_type(const Json& object, const char* key) {
  try {
    return part(object, key).get<T>();
  } catch (const Json::exception&) {
    throw EnvironmentError(fmt::format("{} is not of the type that it should be", key));
  }
}
const Json& list(const Json& value, const char* what) {
  if (!value.is_array()) throw EnvironmentError(fmt::format("{} is no list", what));
  return value;
}
void only(const Json& object, std::initializer_list<const char*> keys) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(keys, key) == keys.end())
      throw EnvironmentError(fmt::format("it has a key '{}'", one_line(key, 60)));
  }
}

TunedSize entry_from(const Json& json) {
  TunedSize entry;
  entry.bytes = whole(part(json, "bytes"), "bytes", 1, std::numeric_limits<std::uint64_t>::max());
  entry.contender = of_type<std::string>(json, "contender");
  entry.shape = {whole32(json, "blocks", 1, max_blocks), whole32(json, "threads", 32, max_threads)};
  entry.p50_us = of_type<double>(json, "p50_us");
  entry.launches = whole32(json, "launches", 1, std::numeric_limits<std::uint32_t>::max());
  only(json, {"bytes", "contender", "blocks", "threads", "p50_us", "evidence", "launches"});
  const auto evidence = of_type<std::string>(json, "evidence");
  for (const Evidence known : {Evidence::measured, Evidence::modelled, Evidence::emulated}) {
    if (name_of(known) != evidence) continue;
    entry.evidence = known;
    return entry;
  }
  throw EnvironmentError(fmt::format("there is no evidence '{}'", one_line(evidence, 60)));
}

// All but what the catalog must agree to.
Tuning read(const Json& json) {
  if (!json.is_object() || json.value("schema", Json()) != schema || json.value("version", Json()) != version)
    throw EnvironmentError(fmt::format("its schema is not '{}', version {}", schema, version));
  Tuning tuning;
  const Json& machine = part(json, "machine");
  tuning.machine.gpus = of_type<std::vector<std::string>>(machine, "gpus");
  for (const Json& peers : list(part(machine, "peers"), "peers")) {
    std::vector<std::uint32_t>& ranks = tuning.machine.peers.emplace_back();
    for (const Json& peer : list(peers, "peers"))
      ranks.push_back(static_cast<std::uint32_t>(whole(peer, "a peer", 0, max_ranks - 1)));
  }
  tuning.machine.numa_nodes = of_type<std::vector<int>>(machine, "numa_nodes");
  only(machine, {"gpus", "peers", "numa_nodes"});
  tuning.ranks = whole32(json, "ranks", 2, max_ranks);
  tuning.island_ranks = whole32(json, "island_ranks", 0, max_ranks);
  tuning.bundle = of_type<std::string>(json, "bundle");
  const auto dtype = dtype_from(of_type<std::string>(json, "dtype"));
  if (!dtype) throw EnvironmentError("its dtype is not known");
  tuning.dtype = *dtype;
  for (const Json& entry : list(part(json, "sizes"), "sizes")) tuning.sizes.push_back(entry_from(entry));
  only(json, {"schema", "version", "machine", "ranks", "island_ranks", "dtype", "bundle", "sizes"});
  return tuning;
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
    tuning = read(json);
  } catch (const EnvironmentError& error) {
    throw refuse(error.what());
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
