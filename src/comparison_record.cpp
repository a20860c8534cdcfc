#include "comparison_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace arb {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* plan_schema = "arbench comparison plan";
constexpr std::array all_roles = {Role::a, Role::b, Role::placebo, Role::compiler_of_b, Role::nccl_of_b};

template <typename Enum, std::size_t Count>
Enum enum_from(const Json& text, const std::array<Enum, Count>& all) {
  const std::string name = text;
  for (const Enum value : all) {
    if (name_of(value) == name) return value;
  }
  throw RecordError(fmt::format("'{}' is no value of this key", name));
}

Role role_from(const Json& text) {
  return enum_from(text, all_roles);
}

Json json_of(const ComparedKey& key) {
  return {{"contender", key.contender},  {"contender_b", key.contender_b},
          {"dtype", name_of(key.dtype)}, {"ranks", key.ranks},
          {"bytes", key.bytes},          {"place", name_of(key.place)},
          {"mode", name_of(key.mode)},   {"cache", name_of(key.cache)}};
}

ComparedKey key_from(const Json& json) {
  return {.contender = json.at("contender"),
          .contender_b = json.at("contender_b"),
          .dtype = enum_from(json.at("dtype"), all_dtypes),
          .ranks = json.at("ranks"),
          .bytes = json.at("bytes"),
          .place = enum_from(json.at("place"), std::array{Place::out, Place::in}),
          .mode = enum_from(json.at("mode"), std::array{Mode::isolated, Mode::pipelined}),
          .cache = enum_from(json.at("cache"), std::array{Cache::cold, Cache::warm})};
}

template <typename T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}
template <typename T>
void get(const Json& json, const char* key, std::optional<T>& value) {
  if (json.contains(key)) value = json.at(key).template get<T>();
}

Json json_of(const GpuDuring& gpu) {
  Json json = {{"uuid", gpu.uuid}};
  put(json, "sm_clock_mhz", gpu.sm_clock_mhz);
  put(json, "least_sm_clock_mhz", gpu.least_sm_clock_mhz);
  put(json, "most_sm_clock_mhz", gpu.most_sm_clock_mhz);
  put(json, "memory_clock_mhz", gpu.memory_clock_mhz);
  put(json, "events", gpu.events);
  put(json, "new_errors", gpu.new_errors);
  put(json, "temperature_c", gpu.temperature_c);
  return json;
}

GpuDuring gpu_from(const Json& json) {
  GpuDuring gpu;
  gpu.uuid = json.at("uuid");
  get(json, "sm_clock_mhz", gpu.sm_clock_mhz);
  get(json, "least_sm_clock_mhz", gpu.least_sm_clock_mhz);
  get(json, "most_sm_clock_mhz", gpu.most_sm_clock_mhz);
  get(json, "memory_clock_mhz", gpu.memory_clock_mhz);
  get(json, "events", gpu.events);
  get(json, "new_errors", gpu.new_errors);
  get(json, "temperature_c", gpu.temperature_c);
  return gpu;
}

LaunchRecord launch_from(const Json& json, const ComparisonPlan& plan) {
  LaunchRecord launch;
  launch.role = role_from(json.at("role"));
  launch.driver = json.at("driver");
  for (const Json& gpu : json.at("gpus")) launch.gpus.push_back(gpu_from(gpu));
  for (const Json& time : json.at("times_us")) {
    if (time.is_null()) {
      launch.times_us.emplace_back();
      continue;
    }
    const double us = time;
    if (!(us > 0) || !std::isfinite(us)) throw RecordError("a time that is not positive");
    launch.times_us.emplace_back(us);
  }
  launch.ran = json.at("ran").get<std::vector<std::string>>();
  if (launch.times_us.size() != plan.cells.size() || launch.ran.size() != plan.cells.size()) {
    throw RecordError(fmt::format("{} times for {} cells", launch.times_us.size(), plan.cells.size()));
  }
  return launch;
}

std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string ComparedKey::contender_name() const {
  return contender == contender_b ? contender : contender + ":" + contender_b;
}

std::string ComparedKey::name() const {
  return fmt::format("{}/{}/n{}/{}/{}/{}/{}", contender_name(), name_of(dtype), ranks, bytes, name_of(place),
                     name_of(mode), name_of(cache));
}

const LaunchRecord* Block::find(Role role) const {
  const auto found = std::ranges::find(launches, role, &LaunchRecord::role);
  return found == launches.end() ? nullptr : &*found;
}

std::string to_json(const GpuDuring& gpu) {
  return json_of(gpu).dump();
}

GpuDuring gpu_during_from_json(std::string_view text) {
  try {
    return gpu_from(Json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw RecordError(fmt::format("what was seen of a GPU is cut or corrupt ({})", error.what()));
  }
}

std::string to_json(const ComparisonPlan& plan) {
  Json json = {{"schema", plan_schema},
               {"version", 1},
               {"a", plan.arm_a},
               {"b", plan.arm_b},
               {"arguments", plan.arguments},
               {"blocks", plan.blocks},
               {"extend", plan.extend},
               {"attribute", plan.attribute},
               {"seed", plan.seed},
               {"driver", plan.driver},
               {"gpus", plan.gpus}};
  json["arms"] = Json::array();
  for (std::size_t i = 0; i < plan.roles.size(); ++i) {
    const ArmFound& found = plan.found.at(i);
    json["arms"].push_back({{"role", name_of(plan.roles[i])},
                            {"bundle", found.bundle},
                            {"bundle_digest", found.bundle_digest},
                            {"nccl", found.nccl},
                            {"nccl_path", found.nccl_path},
                            {"choices", found.choices}});
  }
  json["orders"] = Json::array();
  for (const auto& order : block_orders(plan.roles, plan.blocks * (plan.extend ? 2 : 1), plan.seed)) {
    Json names = Json::array();
    for (const Role role : order) names.push_back(name_of(role));
    json["orders"].push_back(std::move(names));
  }
  json["cells"] = Json::array();
  for (const ComparedKey& key : plan.cells) json["cells"].push_back(json_of(key));
  return dumped(json, 1) + "\n";
}

ComparisonPlan plan_from_json(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema") != plan_schema || json.at("version") != 1) {
      throw RecordError("plan.json is no comparison's plan of this version of arbench");
    }
    ComparisonPlan plan;
    plan.arm_a = json.at("a");
    plan.arm_b = json.at("b");
    plan.arguments = json.at("arguments").get<std::vector<std::string>>();
    plan.blocks = json.at("blocks");
    plan.extend = json.at("extend");
    plan.attribute = json.at("attribute");
    plan.seed = json.at("seed");
    plan.driver = json.at("driver");
    plan.gpus = json.at("gpus").get<std::vector<std::string>>();
    for (const Json& arm : json.at("arms")) {
      plan.roles.push_back(role_from(arm.at("role")));
      plan.found.push_back({.bundle = arm.at("bundle"),
                            .bundle_digest = arm.at("bundle_digest"),
                            .nccl = arm.at("nccl"),
                            .nccl_path = arm.at("nccl_path"),
                            .choices = arm.at("choices")});
    }
    for (const Json& key : json.at("cells")) plan.cells.push_back(key_from(key));
    return plan;
  } catch (const nlohmann::json::exception& error) {
    throw RecordError(fmt::format("plan.json is cut or corrupt ({})", error.what()));
  }
}

std::string to_json_line(const Block& block) {
  Json json = {{"block", block.index}};
  json["launches"] = Json::array();
  for (const LaunchRecord& launch : block.launches) {
    Json entry = {{"role", name_of(launch.role)}, {"driver", launch.driver}};
    entry["gpus"] = Json::array();
    for (const GpuDuring& gpu : launch.gpus) entry["gpus"].push_back(json_of(gpu));
    entry["times_us"] = Json::array();
    for (const auto& time : launch.times_us) entry["times_us"].push_back(time ? Json(*time) : Json(nullptr));
    entry["ran"] = launch.ran;
    json["launches"].push_back(std::move(entry));
  }
  return dumped(json, -1);
}

std::vector<Block> blocks_from_json_lines(std::string_view text, const ComparisonPlan& plan) {
  std::vector<Block> blocks;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      throw RecordError(fmt::format("line {} of blocks.jsonl is cut: it has no end", number));
    }
    try {
      const Json json = Json::parse(text.substr(0, end));
      Block block{.index = json.at("block"), .launches = {}};
      for (const Json& launch : json.at("launches")) block.launches.push_back(launch_from(launch, plan));
      if (block.index != blocks.size()) throw RecordError("a block out of order");
      for (const Role role : plan.roles) {
        if (block.find(role) == nullptr) throw RecordError(fmt::format("no launch of {}", name_of(role)));
      }
      if (block.launches.size() != plan.roles.size())
        throw RecordError("launches that the plan does not have");
      blocks.push_back(std::move(block));
    } catch (const std::runtime_error& error) {
      throw RecordError(fmt::format("line {} of blocks.jsonl: {}", number, error.what()));
    } catch (const nlohmann::json::exception& error) {
      throw RecordError(fmt::format("line {} of blocks.jsonl is corrupt ({})", number, error.what()));
    }
    text.remove_prefix(end + 1);
  }
  return blocks;
}

}  // namespace arb
